"""Libraries rebuild loaders from their attributes: what comes out chooses its number as well."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, SequentialSampler

import stoker
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import begun, epoch_with, pids, still
from tests.contract.methods import many_workers
from tests.datasets import Drawing, Plain, Telling

__all__ = ["still"]
pytestmark = pytest.mark.usefixtures("still")


def lightning(loader: Any) -> Any:
    """Attributes that are parameters and differ from the default; the sampler is put in again.

    As `_get_dataloader_init_args_and_kwargs` and `_dataloader_init_kwargs_resolve_sampler`.
    """
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = dict(inspect.signature(loader.__init__).parameters)
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given = {
        name: attributes[name]
        for name, parameter in parameters.items()
        if name in attributes and parameter.default is not attributes[name]
    }
    given["dataset"] = loader.dataset
    batches = loader.batch_sampler
    if batches is not None and loader.batch_size is None:
        again = type(batches)(loader.sampler, batches.batch_size, batches.drop_last)
        excluded = {"batch_size": 1, "drop_last": False, "sampler": None}
        given |= {"batch_sampler": again, "shuffle": False, **excluded}
    else:
        given |= {"sampler": loader.sampler, "shuffle": False, "batch_sampler": None}
    required = {name for name, p in parameters.items() if p.default is p.empty}
    assert required <= set(given)
    return type(loader)(**given)


def ignite(loader: Any) -> Any:
    """All public attributes, with another batch sampler, as `update_dataloader`."""
    excluded = {"batch_size", "sampler", "drop_last", "batch_sampler", "dataset_kind"}
    names = {name for name in vars(loader) if not name.startswith("_")} - excluded
    given = {name: getattr(loader, name) for name in names}
    return type(loader)(**given, batch_sampler=loader.batch_sampler)


def accelerate(loader: Any) -> Any:
    """A loader of torch's with attributes of the given one, as `prepare_data_loader`."""
    defaults = {
        "num_workers": 0,
        "collate_fn": None,
        "pin_memory": False,
        "timeout": 0,
        "worker_init_fn": None,
        "multiprocessing_context": None,
        "generator": None,
        "prefetch_factor": 2,
        "persistent_workers": False,
        "pin_memory_device": "",
        "in_order": True,
    }
    given = {name: getattr(loader, name, default) for name, default in defaults.items()}
    return torch.utils.data.DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **given)


def pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


WAYS = [lightning, ignite, pickled, copy.copy, copy.deepcopy]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
iterated_or_not = pytest.mark.parametrize("workers", [None, 0, 2], ids=str)

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "seed": {"seed": 7, "shuffle": True, "batch_size": 3},
    "on a time-out": {"on_timeout": "retry", "batch_size": 3},
    "memory limit": {"memory_limit": "1GB", "batch_size": 3},
    "forked": {"worker_method": "fork", "batch_size": 3},
    "restarts": {"max_restarts": 7, "batch_size": 3},
    "on error": {"on_error": "skip", "max_errors": 5, "batch_size": 3},
    "replacing": {"on_error": "replace", "max_errors": 0.5, "shuffle": True},
    "not persistent": {"persistent_workers": False, "batch_size": 3},
    "persistent": {"persistent_workers": True, "prefetch_factor": 3, "batch_size": 3},
    "unordered": {"in_order": False, "batch_size": 2, "drop_last": True},
    "batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(20)), 3, False)},
}


@every_way
@iterated_or_not
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_stays_automatic_with_all_it_was_given(
    way: Callable[[Any], Any], workers: int | None, options: dict[str, Any]
) -> None:
    made = stoker.DataLoader(Telling(20), **options)
    if workers is not None:
        epoch_with(made, workers)
    again = way(made)
    assert type(again) is stoker.DataLoader
    for name in (
        "seed",
        "memory_limit",
        "worker_method",
        "max_restarts",
        "timeout",
        "on_timeout",
        "on_error",
        "max_errors",
        "debug",
        "prefetch_factor",
        "persistent_workers",
        "in_order",
    ):
        assert getattr(again, name) == getattr(made, name)
    assert isinstance(again.num_workers, int)
    iterator, _ = begun(again)
    assert again.statistics().automatic
    before, left = pids(iterator), len(list(iterator))
    assert left + 1 == len(made)
    stays = options.get("persistent_workers", True)
    assert (pids(iter(again)) == before) == stays


@every_way
@iterated_or_not
def test_it_has_numbers_and_workers_of_its_own(
    way: Callable[[Any], Any], workers: int | None
) -> None:
    made = stoker.DataLoader(Telling(20), batch_size=2)
    if workers is not None:
        epoch_with(made, workers)
    again = way(made)
    assert again.statistics().batches == 0
    assert again.statistics().decisions == ()
    (one, _), (other, _) = begun(made), begun(again)
    assert not set(pids(one)) & set(pids(other))
    assert len(list(one)) == len(list(other)) == 9


@every_way
@pytest.mark.parametrize("workers", [0, 2])
def test_it_gives_the_same_batches(way: Callable[[Any], Any], workers: int) -> None:
    def new() -> Any:
        return stoker.DataLoader(Drawing(20), batch_size=3, shuffle=True, seed=7)

    expected = [
        copied(batch)
        for batch in stoker.DataLoader(
            Drawing(20), batch_size=3, shuffle=True, seed=7, num_workers=0
        )
    ]
    assert_same(epoch_with(way(new()), workers), expected)
    assert_same(epoch_with(way(way(new())), workers), expected)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_one_may_be_made_while_the_other_runs(way: Callable[[Any], Any]) -> None:
    made = stoker.DataLoader(Plain(40, (1,)), batch_size=2)
    iterator, _ = begun(made)
    again = way(made)
    assert [int(batch[0]) for batch in again] == list(range(0, 40, 2))
    assert [int(batch[0]) for batch in iterator] == list(range(2, 40, 2))


@iterated_or_not
@pytest.mark.parametrize("persistent", [None, False, True])
@many_workers
def test_torchs_loader_takes_the_attributes(workers: int | None, persistent: bool | None) -> None:
    options = {} if persistent is None else {"persistent_workers": persistent}
    made = stoker.DataLoader(Plain(12), batch_size=2, **options)
    if workers is not None:
        epoch_with(made, workers)
    if persistent and not workers:
        return  # torch refuses them without workers: the user has asked for both
    again = accelerate(made)
    assert type(again) is torch.utils.data.DataLoader
    assert again.num_workers == (workers or 0)
    for _ in range(2):
        assert [int(batch[0, 0]) for batch in again] == list(range(0, 12, 2))
    del again


def test_a_number_that_was_given_stays_given() -> None:
    for way in WAYS:
        again = way(stoker.DataLoader(Plain(12), batch_size=2, num_workers=1))
        assert len(list(again)) == 6
        assert not again.statistics().automatic
        assert again.num_workers == 1
