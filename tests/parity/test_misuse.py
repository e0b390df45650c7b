"""The same misuse gives the same error and the same warning, and what is allowed is allowed."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

import stoker
from stoker.errors import NotPicklable
from tests.datasets import Gated, Plain, Stream
from tests.parity.calls import KINDS, Outcome, both, outcome

NEW = {
    "seed": None,
    "memory_limit": None,
    "max_restarts": 3,
    "on_timeout": "raise",
    "on_error": "raise",
    "max_errors": None,
    "debug": None,
    "worker_method": "auto",
}
FORK = {"multiprocessing_context": "fork"}
TABLE = TensorDataset(torch.arange(10))

MISUSES: dict[str, Callable[[Any], Any]] = {
    "num_workers negative": lambda kind: kind(TABLE, num_workers=-1),
    "timeout negative": lambda kind: kind(TABLE, timeout=-1),
    "prefetch negative": lambda kind: kind(TABLE, num_workers=1, prefetch_factor=-1),
    "context unknown": lambda kind: kind(TABLE, num_workers=1, multiprocessing_context="bus"),
    "context of a wrong type": lambda kind: kind(TABLE, num_workers=1, multiprocessing_context=3),
    "sampler and shuffle": lambda kind: kind(TABLE, sampler=SequentialSampler(TABLE), shuffle=True),
    "batch_sampler and batch_size": lambda kind: kind(TABLE, batch_sampler=[[0]], batch_size=2),
    "batch_sampler and shuffle": lambda kind: kind(TABLE, batch_sampler=[[0]], shuffle=True),
    "batch_sampler and sampler": lambda kind: kind(TABLE, batch_sampler=[[0]], sampler=[0]),
    "batch_sampler and drop_last": lambda kind: kind(TABLE, batch_sampler=[[0]], drop_last=True),
    "drop_last without batches": lambda kind: kind(TABLE, batch_size=None, drop_last=True),
    "batch_size 0": lambda kind: kind(TABLE, batch_size=0),
    "batch_size negative": lambda kind: kind(TABLE, batch_size=-3),
    "batch_size float": lambda kind: kind(TABLE, batch_size=1.5),
    "shuffle nothing": lambda kind: kind([], shuffle=True),
    "iterable and shuffle": lambda kind: kind(Stream(3), shuffle=True),
    "iterable and sampler": lambda kind: kind(Stream(3), sampler=[0]),
    "iterable and batch_sampler": lambda kind: kind(Stream(3), batch_sampler=[[0]]),
    "iterable without length": lambda kind: len(kind(_Endless())),
    "dataset without length": lambda kind: kind(_NoLength()),
    "dataset without length, sampler": lambda kind: len(list(kind(_NoLength(), sampler=[1, 2]))),
    "set batch_size": lambda kind: setattr(kind(TABLE), "batch_size", 2),
    "set batch_sampler": lambda kind: setattr(kind(TABLE), "batch_sampler", [[0]]),
    "set sampler": lambda kind: setattr(kind(TABLE), "sampler", [0]),
    "set drop_last": lambda kind: setattr(kind(TABLE), "drop_last", True),
    "set dataset": lambda kind: setattr(kind(TABLE), "dataset", TABLE),
    "set persistent_workers": lambda kind: setattr(kind(TABLE), "persistent_workers", True),
    "set a context without workers": lambda kind: setattr(
        kind(TABLE, num_workers=0), "multiprocessing_context", "fork"
    ),
    "pickle an iterator": lambda kind: _beginning(lambda: pickle.dumps(iter(kind(TABLE)))),
    "set others": lambda kind: _set_others(kind(TABLE, num_workers=1)),
    "too many workers": lambda kind: len(kind(TABLE, num_workers=10_000)),
    "pin_memory without accelerator": lambda kind: len(list(kind(TABLE, pin_memory=True))),
    "pin_memory_device": lambda kind: len(
        list(kind(TABLE, pin_memory=True, pin_memory_device="cuda"))
    ),
    "pin_memory_device alone": lambda kind: len(list(kind(TABLE, pin_memory_device="cuda"))),
    "unknown argument": lambda kind: kind(TABLE, workers=3),
    "keyword-only by position": lambda kind: kind(TABLE, *([None] * 13)),
    "no arguments": lambda kind: kind(),
    "index out of range": lambda kind: list(kind(TABLE, sampler=[3, 12])),
    "len of a longer iterable": lambda kind: _count(kind(_Lying(5, 3), batch_size=None)),
    "len of a longer iterable, batches": lambda kind: _count(kind(_Lying(9, 3), batch_size=2)),
    "len of an exact iterable": lambda kind: _count(kind(_Lying(5, 5), batch_size=2)),
    "len of a longer iterable, workers": lambda kind: _count(
        kind(_Lying(5, 3), batch_size=None, num_workers=2, **FORK)
    ),
}


def _set_others(made: Any) -> None:
    made.num_workers = 2
    made.timeout = 3
    made.collate_fn = list
    made.pin_memory = True
    made.worker_init_fn = print
    made.prefetch_factor = 4
    made.in_order = False
    made.multiprocessing_context = "fork"
    made.anything = 1


def _beginning(call: Callable[[], Any]) -> None:
    """Raises what the call raises, without the message: ours says more."""
    try:
        call()
    except Exception as error:
        raise type(error)() from None


def _count(made: Any) -> tuple[int, int]:
    return len(made), len(list(made))


class _NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class _Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class _Lying(IterableDataset[int]):
    def __init__(self, length: int, said: int) -> None:
        self.length = length
        self.said = said

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))

    def __len__(self) -> int:
        return self.said

    def __repr__(self) -> str:
        return "Lying"


@pytest.mark.parametrize("call", MISUSES.values(), ids=MISUSES.keys())
def test_the_outcome_is_torchs(call: Callable[[Any], Any]) -> None:
    stock, ours = both(call)
    if ours.error is not None and stock.error is not None:
        assert ours.error[0] == stock.error[0]
        assert ours.error[1].startswith(stock.error[1])  # Ours may say more.
    else:
        assert ours.error == stock.error
    assert ours.warnings == stock.warnings
    if isinstance(stock.value, (int, tuple)):
        assert ours.value == stock.value


def test_every_misuse_is_one() -> None:
    """The table would prove nothing if torch let its entries pass in silence."""
    silent = {
        name
        for name, call in MISUSES.items()
        if (seen := outcome(call, KINDS["torch"])).error is None and not seen.warnings
    }
    assert silent == {
        "dataset without length",
        "dataset without length, sampler",
        "set others",
        "pin_memory_device alone",
        "len of an exact iterable",
    }


# What we do otherwise, each with its reason; (call, torch's outcome, our outcome).
DIFFERENCES: dict[str, tuple[Callable[[Any], Any], str | None, str | None]] = {
    # torch takes it and then fails an assertion in the middle of iter(): C164.
    "prefetch_factor=0 is refused in the constructor": (
        lambda kind: kind(TABLE, num_workers=1, prefetch_factor=0),
        None,
        "ValueError",
    ),
    # What is for workers is checked, and not needed, without any: C164.
    "timeout without workers": (
        lambda kind: len(list(kind(TABLE, num_workers=0, timeout=3))),
        "AssertionError",
        None,
    ),
    "prefetch without workers": (
        lambda kind: kind(TABLE, num_workers=0, prefetch_factor=2),
        "ValueError",
        None,
    ),
    "prefetch of 0 without workers": (
        lambda kind: kind(TABLE, num_workers=0, prefetch_factor=0),
        "ValueError",
        "ValueError",
    ),
    "persistent without workers": (
        lambda kind: kind(TABLE, num_workers=0, persistent_workers=True),
        "ValueError",
        None,
    ),
    "context without workers": (
        lambda kind: kind(TABLE, num_workers=0, multiprocessing_context="fork"),
        "ValueError",
        None,
    ),
    "context unknown without workers": (
        lambda kind: kind(TABLE, num_workers=0, multiprocessing_context="bus"),
        "ValueError",
        "ValueError",
    ),
    # "auto" is the one string that means something here.
    "num_workers as text": (
        lambda kind: kind(TABLE, num_workers="2"),
        "TypeError",
        "TypeError",
    ),
    # torch's message is that "'<' is not supported", and does not name it.
    "num_workers None": (
        lambda kind: kind(TABLE, num_workers=None),
        "TypeError",
        "TypeError",
    ),
    # torch takes these, and fails in the middle of an epoch, or in a worker.
    "a collate_fn that is no function": (
        lambda kind: kind(TABLE, collate_fn=3),
        None,
        "TypeError",
    ),
    "a sampler that is no iterable": (lambda kind: kind(TABLE, sampler=3), None, "TypeError"),
    "a generator of numpy": (
        lambda kind: kind(TABLE, generator=np.random.default_rng()),
        None,
        "TypeError",
    ),
    "a number of workers with a fraction": (
        lambda kind: kind(TABLE, num_workers=1.5),
        None,
        "TypeError",
    ),
    "a time-out that is no number": (
        lambda kind: kind(TABLE, num_workers=1, timeout=float("nan")),
        None,
        "ValueError",
    ),
    # Where the loader chooses, there may be workers: what is meant for them is taken.
    "a time-out without a number of workers": (
        lambda kind: iter(kind(TABLE, timeout=3)),
        "AssertionError",
        None,
    ),
    "a prefetch factor without a number of workers": (
        lambda kind: kind(TABLE, prefetch_factor=2),
        "ValueError",
        None,
    ),
    "persistent workers without a number of them": (
        lambda kind: kind(TABLE, persistent_workers=True),
        "ValueError",
        None,
    ),
    "a context without a number of workers": (
        lambda kind: kind(TABLE, multiprocessing_context="fork"),
        "ValueError",
        None,
    ),
    "a context that is set without a number of workers": (
        lambda kind: setattr(kind(TABLE), "multiprocessing_context", "fork"),
        "ValueError",
        None,
    ),
    # It would be taken for the end of the epoch, in silence: torch in-process does so.
    "a StopIteration from a sample is an error": (
        lambda kind: list(kind(_Stopping())),
        None,
        "RuntimeError",
    ),
}


class _Stopping(Plain):
    def __init__(self) -> None:
        super().__init__(5)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2:
            raise StopIteration
        return super().__getitem__(index)


@pytest.mark.parametrize(("call", "torchs", "ours"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_difference_that_is_meant(
    call: Callable[[Any], Any], torchs: str | None, ours: str | None
) -> None:
    outcomes = both(call)
    assert [_kind(x) for x in outcomes] == [torchs, ours]


def _kind(seen: Outcome) -> str | None:
    return None if seen.error is None else seen.error[0]


def test_the_arguments_are_torchs_and_more_by_keyword() -> None:
    stock = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    ours = inspect.signature(stoker.DataLoader.__init__).parameters
    assert list(ours)[: len(stock)] == list(stock)
    for name, parameter in stock.items():
        default = "auto" if name == "num_workers" else parameter.default
        assert (ours[name].kind, ours[name].default) == (parameter.kind, default)
    for name in list(ours)[len(stock) :]:
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert ours[name].default == NEW[name]


def test_the_attributes_are_torchs_and_the_new_arguments() -> None:
    stock = torch.utils.data.DataLoader(TABLE, batch_size=2, num_workers=1)
    ours = stoker.DataLoader(TABLE, batch_size=2, num_workers=1, seed=3)
    public = {name for name in vars(ours) if not name.startswith("_")}
    assert public == {name for name in vars(stock) if not name.startswith("_")} | {*NEW}
    for name in public - {*NEW} - {"generator", "sampler", "batch_sampler"}:
        assert getattr(ours, name) == getattr(stock, name), name
    assert isinstance(ours, torch.utils.data.DataLoader)
    assert stoker.DataLoader[int] is not None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"sampler": [1, 2]},
        {"batch_sampler": [[1], [2], [3]]},
    ],
    ids=str,
)
def test_lengths_are_torchs(options: dict[str, Any]) -> None:
    stock, ours = (kind(TABLE, **options) for kind in KINDS.values())
    assert len(ours) == len(stock)
    assert len(iter(ours)) == len(iter(stock))
    assert len(stoker.DataLoader(TABLE, seed=1, **options)) == len(stock)


def test_lengths_of_iterables_are_torchs() -> None:
    for options in ({}, {"batch_size": 2}, {"batch_size": 2, "drop_last": True}):
        stock, ours = (kind(_Lying(5, 5), **options) for kind in KINDS.values())
        assert len(ours) == len(stock)


def test_an_endless_iterable_has_no_length_but_batches() -> None:
    made = stoker.DataLoader(_Endless(), batch_size=2)
    with pytest.raises(TypeError):
        len(made)
    assert [batch.tolist() for batch in made] == [[0, 1], [2]]


@pytest.mark.parametrize(
    "context",
    [
        lambda: "fork",
        lambda: multiprocessing.get_context("spawn"),
        lambda: None,
    ],
)
def test_the_context_reads_as_in_torch(context: Any) -> None:
    stock, ours = (
        kind(TABLE, num_workers=1, multiprocessing_context=context()) for kind in KINDS.values()
    )
    assert ours.multiprocessing_context is stock.multiprocessing_context


def test_an_unpicklable_dataset_is_torchs_warning_and_names_its_error() -> None:
    class Local(Plain):
        pass

    def call(kind: Any) -> Any:
        return iter(kind(Local(3), num_workers=1, multiprocessing_context="spawn"))

    stock, ours = both(call)
    assert stock.error is not None
    assert ours.error is not None
    [warned], [torch_s] = ours.warnings, stock.warnings  # Ours has no advice: the error has it.
    assert warned[0] == torch_s[0]
    assert torch_s[1].startswith(f"{warned[1]} Python 3.14+ changed")
    with pytest.warns(UserWarning, match="pickle"), pytest.raises(NotPicklable) as caught:
        call(KINDS["stoker"])
    assert type(caught.value.__cause__).__name__ == stock.error[0]
    assert isinstance(caught.value, type(caught.value.__cause__))
    assert not multiprocessing.active_children()


def test_errors_in_a_worker_have_torchs_beginning() -> None:
    error = outcome(
        lambda kind: list(kind(_Failing(), num_workers=1, **FORK)), KINDS["stoker"]
    ).error
    assert error is not None
    kind, text = error
    assert kind == "LookupError"
    assert text.startswith("Caught LookupError in DataLoader worker process 0")
    assert "\nOriginal Traceback (most recent call last):\n" in text
    assert text.endswith("LookupError: no sample\n")


class _Failing(Plain):
    def __init__(self) -> None:
        super().__init__(2)

    def __getitem__(self, index: int) -> torch.Tensor:
        raise LookupError("no sample")


def test_a_time_out_has_torchs_text() -> None:
    dataset = Gated(2, 0, multiprocessing.get_context("fork").Event())
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 1 seconds\n"):
        list(stoker.DataLoader(dataset, num_workers=1, timeout=1, **FORK))


def test_there_is_no_worker_info_outside() -> None:
    list(stoker.DataLoader(TABLE))
    list(stoker.DataLoader(TABLE, num_workers=1, **FORK))
    assert get_worker_info() is None
