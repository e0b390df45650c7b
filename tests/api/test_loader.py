"""The loader's face: what libraries read from it, and how they rebuild it."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import stoker
from tests.datasets import Drawing, Plain, Stream
from tests.unit.alike import assert_alike

EMPTY = inspect.Parameter.empty


def parameters(kind: type) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(kind.__init__).parameters)
    del found["self"]
    return found


NEW = {
    "seed": None,
    "memory_limit": None,
    "worker_method": "auto",
    "max_restarts": 3,
    "on_timeout": "raise",
    "on_error": "raise",
    "max_errors": None,
    "debug": None,
}
OURS, THEIRS = parameters(stoker.DataLoader), parameters(torch.utils.data.DataLoader)


def test_what_the_package_offers() -> None:
    assert stoker.__all__ == [
        *("REPLACE", "SKIP", "DataLoader", "__version__", "packed", "per_worker"),
    ]
    assert repr([stoker.SKIP, stoker.REPLACE]).count("Instead") == 2
    assert stoker.DataLoader.__name__ == "DataLoader"
    assert stoker.__version__.count(".") == 2
    with pytest.raises(AttributeError, match=r"stoker.*no_such_thing"):
        stoker.no_such_thing  # type: ignore[attr-defined]  # noqa: B018


def test_the_parameters_are_torch_s_and_the_new_ones() -> None:
    assert [*OURS] == [*THEIRS, *NEW]
    for name, parameter in THEIRS.items():
        default = "auto" if name == "num_workers" else parameter.default
        assert (name, OURS[name].kind, OURS[name].default) == (name, parameter.kind, default)
    for name in NEW:
        assert OURS[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert OURS[name].default == NEW[name]


def test_it_is_torch_s_loader() -> None:
    loader: stoker.DataLoader[Any] = stoker.DataLoader[int](Stream(3))
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert issubclass(stoker.DataLoader, torch.utils.data.DataLoader)
    assert stoker.DataLoader[int] is not None


def public(loader: Any) -> set[str]:
    return {name for name in vars(loader) if not name.startswith("_")}


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "shuffled": {"batch_size": 3, "shuffle": True, "drop_last": True},
    "sampler": {"batch_size": 3, "sampler": RandomSampler(range(10))},
    "batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(10)), 3, False)},
    "no batches": {"batch_size": None},
    "workers": {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True},
    "seed": {"batch_size": 3, "shuffle": True, "seed": 7},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("iterated", [False, True])
def test_its_public_attributes_are_torch_s_and_the_new_ones(name: str, iterated: bool) -> None:
    arguments = {key: value for key, value in CASES[name].items() if key != "seed"}
    ours = stoker.DataLoader(Drawing(10), **CASES[name])
    theirs = torch.utils.data.DataLoader(Drawing(10), **arguments)
    if iterated and not ours.num_workers:
        assert len(list(ours)) == len(list(theirs))
    assert public(ours) == public(theirs) | {*NEW}
    assert {key: getattr(ours, key) for key in SAME} == {key: getattr(theirs, key) for key in SAME}
    assert ours.seed == CASES[name].get("seed")
    for key, value in CASES[name].items():
        if key != "shuffle":
            assert getattr(ours, key) is value


SAME = [
    "batch_size",
    "num_workers",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "collate_fn",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
]


@pytest.mark.parametrize(
    "name", ["dataset", "batch_size", "sampler", "drop_last", "seed", "on_error", "max_errors"]
)
def test_frozen_attributes_are_frozen(name: str) -> None:
    loader = stoker.DataLoader(Plain(4))
    with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
        setattr(loader, name, None)


def rebuilt(loader: Any, **changes: Any) -> Any:
    """As Lightning does it: arguments from the signature, values from the attributes."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    signature = inspect.signature(type(loader).__init__).parameters
    taken = {name: value for name, value in attributes.items() if name in signature}
    if loader.batch_sampler is not None:
        batches = loader.batch_sampler
        for name in ("batch_size", "shuffle", "sampler", "drop_last"):
            taken.pop(name, None)
        taken["batch_sampler"] = type(batches)(
            batches.sampler, batch_size=batches.batch_size, drop_last=batches.drop_last
        )
    required = {name for name, p in signature.items() if p.default is EMPTY} - {"self"}
    assert required <= set(taken)
    return type(loader)(**{**taken, **changes})


def reordered(loader: Any) -> Any:
    """As other libraries do it: with the loader's own sampler passed on."""
    return type(loader)(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=loader.sampler,
        drop_last=loader.drop_last,
        generator=loader.generator,
        seed=loader.seed,
    )


def two_epochs(loader: Any) -> list[Any]:
    torch.manual_seed(5)
    return [list(loader), list(loader)]


@pytest.mark.parametrize("rebuild", [rebuilt, reordered])
@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 3, "shuffle": True, "seed": 7},
        {"batch_size": 3, "seed": 7},
        {"batch_size": 3, "shuffle": True},
        {"batch_size": 3, "shuffle": True, "drop_last": True},
    ],
    ids=str,
)
def test_a_rebuilt_loader_gives_the_same_batches(
    rebuild: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    expected = two_epochs(stoker.DataLoader(Drawing(10), **arguments))
    assert_alike(two_epochs(rebuild(stoker.DataLoader(Drawing(10), **arguments))), expected)
    assert repr(expected[0]) != repr(expected[1])


def test_a_rebuilt_loader_keeps_every_argument() -> None:
    loader = stoker.DataLoader(Plain(9), 2, seed=3, in_order=False, timeout=5, num_workers=1)
    again = rebuilt(loader, num_workers=2)
    assert (again.seed, again.in_order, again.timeout, again.num_workers) == (3, False, 5, 2)
    assert public(again) == public(loader)


def test_a_rebuilt_loader_lets_the_same_errors_pass() -> None:
    loader = stoker.DataLoader(Plain(9), 2, on_error="skip", max_errors=0.25)
    for again in (rebuilt(loader), rebuilt(rebuilt(loader)), *(c(loader) for c in COPIES.values())):
        assert (again.on_error, again.max_errors) == ("skip", 0.25)
        assert again._account.meter.losses.limit == 0.25


def test_a_loader_can_be_rebuilt_from_a_rebuilt_one() -> None:
    loader = stoker.DataLoader(Drawing(10), batch_size=3, shuffle=True, seed=7)
    expected = two_epochs(stoker.DataLoader(Drawing(10), batch_size=3, shuffle=True, seed=7))
    assert_alike(two_epochs(rebuilt(rebuilt(loader))), expected)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"\[0, 2\*\*64\).*seed={seed}"):
        stoker.DataLoader(Plain(3), seed=seed)


@pytest.mark.parametrize("seed", [True, 1.0, "7"])
def test_a_seed_of_another_type_is_refused(seed: Any) -> None:
    with pytest.raises(TypeError, match="seed"):
        stoker.DataLoader(Plain(3), seed=seed)


def test_a_seed_and_a_generator_seeded_otherwise_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        stoker.DataLoader(Plain(3), seed=1, generator=torch.Generator().manual_seed(2))


def test_any_integer_may_be_a_seed() -> None:
    assert stoker.DataLoader(Plain(3), seed=torch.tensor(7)).seed == 7  # type: ignore[arg-type]
    assert stoker.DataLoader(Plain(3), seed=2**64 - 1).seed == 2**64 - 1


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda loader: pickle.loads(pickle.dumps(loader)),
    "copied": copy.copy,
    "deeply copied": copy.deepcopy,
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("iterated", [False, True])
def test_a_copy_gives_the_same_batches(name: str, iterated: bool) -> None:
    loader = stoker.DataLoader(Drawing(7), batch_size=3)
    if iterated:
        list(loader)
    duplicate = COPIES[name](loader)
    assert type(duplicate) is stoker.DataLoader
    assert public(duplicate) == public(loader)
    assert_alike(two_epochs(duplicate), two_epochs(loader))


@pytest.mark.parametrize("kind", [stoker.DataLoader, torch.utils.data.DataLoader])
@pytest.mark.parametrize("name", ["pickled", "deeply copied"])
def test_a_loader_with_a_generator_is_copied_as_torch_copies_it(kind: Any, name: str) -> None:
    """Generators can be pickled: the copy goes on where the original stands."""
    loader = kind(Plain(9), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(3))
    list(loader)
    duplicate = COPIES[name](loader)
    assert duplicate.generator is not loader.generator
    assert_alike(list(duplicate), list(loader))


@pytest.mark.parametrize("name", ["pickled", "deeply copied"])
def test_a_copy_of_a_seeded_loader_goes_on_where_the_original_stands(name: str) -> None:
    loader = stoker.DataLoader(Drawing(9), batch_size=3, shuffle=True, seed=3)
    list(loader)
    duplicate = COPIES[name](loader)
    assert duplicate.seed == 3
    assert_alike(list(duplicate), list(loader))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_cannot_be_pickled(workers: int) -> None:
    iterator = iter(stoker.DataLoader(Plain(3), num_workers=workers))
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)
    del iterator
