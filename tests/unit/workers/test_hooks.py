"""Classes that are sent by value are made again without the program's hooks for new classes."""

from __future__ import annotations

import abc
import collections
import contextlib
import enum
import typing
from typing import Any

import pytest
import torch

from stoker.workers import by_value, hooks
from tests.unit.workers import an_installed_module as installed
from tests.unit.workers.afresh import sent


@pytest.fixture(autouse=True)
def written() -> Any:
    installed.WRITTEN.clear()
    return installed.WRITTEN


def subclassed() -> Any:
    class Base:
        registry: list[type] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            Base.registry.append(cls)

    class A(Base):
        pass

    class B(A):
        pass

    return Base, A, B


@pytest.mark.parametrize("order", ["012", "210", "120", "2", "1"])
def test_a_base_that_registers_its_subclasses(order: str) -> None:
    there = subclassed()
    found = sent([there[int(which)] for which in order])[0]
    base = found.__mro__[-2]
    assert base is not there[0]
    assert [kind.__name__ for kind in base.registry] == ["A", "B"]
    assert found in (base, *base.registry)
    assert base.__subclasses__() == base.registry[:1]

    class More(base):  # type: ignore[misc]
        pass

    assert base.registry[2:] == [More]
    assert [kind.__name__ for kind in there[0].registry] == ["A", "B"]


def test_a_base_that_wants_arguments() -> None:
    class Base:
        names: dict[str, type] = {}  # noqa: RUF012

        def __init_subclass__(cls, *, name: str) -> None:
            cls.names[name] = cls

    class A(Base, name="a"):
        pass

    again = sent(A)
    assert again.names == {"a": again}


def test_what_is_written_into_a_variable_beside_the_class() -> None:
    seen: list[str] = []

    class Base:
        def __init_subclass__(cls) -> None:
            seen.append(cls.__name__)

    class A(Base):
        pass

    _, read = sent((A, lambda: seen))
    assert read() == ["A"]


def test_all_hooks_of_a_metaclass_and_of_its_own() -> None:
    seen: list[str] = []

    class Above(type):
        def __call__(cls, *given: Any) -> Any:
            seen.append("call")
            return super().__call__(*given)

    class Meta(type, metaclass=Above):
        @classmethod
        def __prepare__(cls, *given: Any) -> Any:
            seen.append("prepare")
            return super().__prepare__(*given)

        def __new__(cls, *given: Any) -> Any:
            seen.append("new")
            return super().__new__(cls, *given)

        def __init__(cls, *given: Any) -> None:
            seen.append("init")
            super().__init__(*given)

    class A(metaclass=Meta):
        pass

    class B(A):
        pass

    names = ["prepare", "call", "new", "init"]
    assert seen == names * 2
    again, read = sent((B, lambda: seen))
    assert read() == names * 2
    assert type(again).__name__ == "Meta"

    class More(again):  # type: ignore[misc]
        pass

    assert read() == names * 3


def test_a_metaclass_that_has_the_classes_in_itself() -> None:
    class Meta(abc.ABCMeta):
        kinds: dict[str, type] = {}  # noqa: RUF012

        def __new__(cls, name: str, bases: Any, names: Any, *, under: str) -> Any:
            made = super().__new__(cls, name, bases, names)
            assert under not in cls.kinds
            cls.kinds[under] = made
            return made

        def __init__(cls, *given: Any, **more: Any) -> None:
            super().__init__(*given)

    class A(metaclass=Meta, under="a"):
        @abc.abstractmethod
        def m(self) -> int: ...

    class B(A, under="b"):
        def m(self) -> int:
            return 3

    a, b = sent((A, B))
    assert type(a).kinds == {"a": a, "b": b}
    assert b().m() == 3
    assert isinstance(b(), a)
    with pytest.raises(TypeError, match="abstract"):
        a()


def test_a_metaclass_that_lets_nobody_set_attributes() -> None:
    class Frozen(type):
        def __setattr__(cls, name: str, value: object) -> None:
            raise AttributeError(name)

    class A(metaclass=Frozen):
        value = 3

    again = sent(A)
    assert again.value == 3
    with pytest.raises(AttributeError):
        again.value = 4


def test_set_name_runs_no_second_time() -> None:
    class Named:
        names: list[str] = []  # noqa: RUF012

        def __set_name__(self, owner: type, name: str) -> None:
            self.names.append(name)
            self.owner = owner

    class A:
        field = Named()

    again = sent(A)
    assert again.field.names == ["field"]
    assert again.field.owner is again


def test_an_enumeration_that_registers() -> None:
    seen: list[str] = []

    class Meta(enum.EnumMeta):
        def __new__(cls, name: str, *given: Any, **more: Any) -> Any:
            seen.append("new " + name)
            return super().__new__(cls, name, *given, **more)

    class Base(enum.Enum, metaclass=Meta):
        def __init_subclass__(cls, **more: Any) -> None:
            super().__init_subclass__(**more)
            seen.append(cls.__name__)

    class Kind(Base):
        A = 1
        B = 2

    before = list(seen)
    kind, read = sent((Kind, lambda: seen))
    assert read() == before
    assert [(each.name, each.value) for each in kind] == [("A", 1), ("B", 2)]
    assert kind(2) is kind.B


def test_what_is_installed_writes_each_class_down_once(written: list[str]) -> None:
    class Base(installed.Writes):
        kinds: list[type] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            Base.kinds.append(cls)

    class A(Base):
        pass

    for thing in [A, Base, (A, Base)]:
        written.clear()
        sent(thing)
        assert sorted(written) == ["A", "Base"]


def test_what_the_program_keeps_from_it_is_kept_from_it(written: list[str]) -> None:
    class Base(installed.Writes):
        def __init_subclass__(cls) -> None:
            pass

    class A(Base):
        pass

    assert written == ["Base"]
    sent((Base, A))
    assert written == ["Base", "Base"]


def test_an_installed_function_as_a_hook_runs(written: list[str]) -> None:
    class Base:
        __init_subclass__ = classmethod(installed.write)  # type: ignore[assignment]

    class A(Base):
        pass

    sent(A)
    assert written == ["A", "A"]


def test_an_installed_metaclass_runs_below_the_programs_own(written: list[str]) -> None:
    seen: list[str] = []

    class Mine(installed.Meta):
        def __new__(cls, *given: Any) -> Any:
            seen.append("new")
            return super().__new__(cls, *given)

        def __init__(cls, *given: Any) -> None:
            seen.append("init")
            super().__init__(*given)

    class A(metaclass=Mine):
        pass

    class B(metaclass=installed.Meta):
        pass

    assert (seen, written) == (["new", "init"], ["new", "init"] * 2)
    *_, read = sent((A, B, lambda: seen))
    assert (read(), written) == (["new", "init"], ["new", "init"] * 4)


def test_arguments_for_what_is_installed_are_given(written: list[str]) -> None:
    class Meta(installed.MetaWith):
        def __new__(cls, *given: Any) -> Any:
            return super().__new__(cls, *given, word="mine")

    class A(metaclass=Meta):
        pass

    sent(A)
    assert written == ["mine"] * 2


def test_hooks_are_back_in_their_place_whatever_making_raises() -> None:
    base, a, _ = subclassed()
    before = dict(vars(base))
    with contextlib.suppress(RuntimeError), hooks._left_out(hooks._hooks_of_making(a)):
        assert vars(base) != before
        raise RuntimeError
    assert vars(base) == before


T = typing.TypeVar("T")


def test_classes_that_python_and_torch_make_are_as_they_were() -> None:
    class Generic(typing.Generic[T]):
        kinds: list[str] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            cls.kinds.append(cls.__name__)

    class Of(Generic[int]):
        pass

    class Named(typing.NamedTuple):
        x: int = 3

    @typing.runtime_checkable
    class Has(typing.Protocol):
        def m(self) -> int: ...

    class Model(torch.nn.Module):
        def m(self) -> int:
            return 1

    generic, of, named, has, model = sent((Generic, Of, Named, Has, Model))
    assert generic.__parameters__ == (T,)
    assert of.kinds == ["Of"]
    assert of.__orig_bases__ == (generic[int],)
    assert generic[int].__origin__ is generic
    assert named().x == 3
    assert isinstance(model(), has)
    assert not isinstance(3, has)
    with pytest.raises(TypeError, match="Protocols"):
        has()


def test_without_hooks_nothing_is_pickled_for_them() -> None:
    class A(collections.OrderedDict):  # type: ignore[type-arg]
        pass

    assert b"_Hook" not in by_value.dumps(A)
    assert b"_Hook" in by_value.dumps(subclassed())


def test_members_of_an_enumeration_keep_what_they_were_given() -> None:
    class Planet(enum.Enum):
        EARTH = (5.97e24, 6.37e6)
        MARS = (6.41e23, 3.39e6)

        def __init__(self, mass: float, radius: float) -> None:
            self.mass, self.radius = mass, radius
            self.neighbour: Any = getattr(type(self), "EARTH", None)

        def gravity(self) -> float:
            return self.mass / self.radius**2

    class Coded(int, enum.Enum):
        ONE = (1, "one")

        def __new__(cls, value: int, code: str) -> Any:
            member = int.__new__(cls, value)
            member._value_ = value
            member.code = code  # type: ignore[attr-defined]
            return member

    planet, coded = sent((Planet.MARS, Coded.ONE))
    assert type(planet) is not Planet
    assert (planet.value, planet.radius) == ((6.41e23, 3.39e6), 3.39e6)
    assert planet.gravity() == Planet.MARS.gravity()
    assert planet.neighbour is type(planet).EARTH
    assert (coded, coded.code, coded.name) == (1, "one", "ONE")
