"""Functions that share variables still share them when they have been sent by value."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.workers.afresh import sent


def counter() -> tuple[Callable[[], int], Callable[[], int]]:
    n = 0

    def add() -> int:
        nonlocal n
        n += 1
        return n

    return add, lambda: n


def test_two_functions_share_a_variable() -> None:
    there = counter()
    add, get = sent(there)
    assert [add(), get(), add(), get()] == [1, 1, 2, 2]
    assert there[1]() == 0


def test_functions_of_two_calls_do_not() -> None:
    (add, get), (_, other) = sent((counter(), counter()))
    assert (add(), get(), other()) == (1, 1, 0)


def test_a_method_and_the_argument_of_a_partial_share_one() -> None:
    add, get = counter()

    class Has:
        plus = staticmethod(add)

    def call(function: Callable[[], int]) -> int:
        return function()

    kind, got = sent((Has, functools.partial(call, get)))
    assert [kind.plus(), got(), kind.plus(), got()] == [1, 1, 2, 2]


def test_a_function_that_calls_itself() -> None:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    again = sent(fib)
    assert again(10) == 55
    assert again.__closure__[0].cell_contents is again


@pytest.mark.parametrize("first", [0, 1])
def test_functions_that_call_each_other(first: int) -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n > 0 and even(n - 1)

    both = sent((even, odd) if first == 0 else (odd, even))
    assert [both[first](n) for n in range(3)] == [True, False, True]
    again = {function.__name__: function for function in both}
    assert again["even"].__closure__[0].cell_contents is again["odd"]
    assert again["odd"].__closure__[0].cell_contents is again["even"]


def test_a_variable_that_has_no_value_yet_is_shared_too() -> None:
    def later() -> Any:
        def give(value: int) -> None:
            nonlocal n
            n = value

        return give, lambda: n
        n = 0

    give, get = sent(later())
    with pytest.raises(NameError, match="'n'"):
        get()
    give(3)
    assert get() == 3


def test_the_value_none_is_a_value() -> None:
    nothing = None
    assert sent(lambda: nothing)() is None


def test_a_variable_that_holds_a_list_which_holds_the_function() -> None:
    def ring() -> Any:
        held: list[Any] = []

        def function() -> Any:
            return held

        held.append(function)
        return function

    function = sent(ring())
    assert function()[0] is function


def test_a_cell_by_itself_is_that_of_the_function() -> None:
    _, get = counter()
    for things in [(get, get.__closure__[0]), (get.__closure__[0], get)]:  # type: ignore[index]
        again = sent(things)
        function, cell = sorted(again, key=lambda each: isinstance(each, types.CellType))
        assert function.__closure__[0] is cell
    assert sent(types.CellType(5)).cell_contents == 5
    with pytest.raises(ValueError, match="empty"):
        sent(types.CellType()).cell_contents  # noqa: B018


def test_super_in_methods_of_a_class_that_is_made_again() -> None:
    class Base:
        def name(self) -> str:
            return "base"

        def kind(self) -> type:
            return __class__  # type: ignore[name-defined]

    class Derived(Base):
        def name(self) -> str:
            return "derived of " + super().name()

        def kind(self) -> type:
            return super().kind()

        @classmethod
        def made(cls) -> Any:
            return super().__new__(cls)

    for things in [(Base, Derived), (Derived, Base), (Derived.name, Base, Derived)]:
        again = {each.__name__: each for each in sent(things)}
        assert again["Base"] is not Base
        made = again["Derived"].made()
        assert made.name() == "derived of base"
        assert made.kind() is again["Base"]
        cells = {id(vars(again["Derived"])[name].__closure__[0]) for name in ("name", "kind")}
        assert len(cells) == 1


def test_many_functions_over_many_variables() -> None:
    """Each refers to all of the others; it is no deeper than one after the other."""

    def function(others: list[Any], number: int) -> Any:
        return lambda: (number, others)

    others: list[Any] = []
    others += [function(others, number) for number in range(100)]
    again = sent(others)
    assert [each()[0] for each in again] == list(range(100))
    assert all(each()[1] is again for each in again)
