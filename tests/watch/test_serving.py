"""The class that takes the place of torch's, in this process; torch itself is left as it is."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset

from stoker.errors import TransportError
from stoker.feed import iteration
from stoker.loader import DataLoader as StokerLoader
from stoker.options import AutoWorkers
from stoker.transport.board import read_boards
from stoker.watch import serving
from stoker.watch.fallbacks import check_torch, taken_over
from stoker.watch.parts import served_in
from stoker.watch.served import Served
from stoker.watch.settings import Settings

Loader: Any = serving.DataLoader


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, length: int = 24) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(2) + index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        step, first = (info.num_workers, info.id) if info else (1, 0)
        return iter(range(first, 12, step))


class Told:
    """What the run's folder would show."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> list[Served]:
        serving._here.ledger.write()
        return list(served_in(str(self.folder)))


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    yield from _begun(tmp_path, "auto")


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Told]:
    yield from _begun(tmp_path, "keep")


def _begun(folder: Path, workers: Any) -> Iterator[Told]:
    serving._here.begin(Settings("run", str(folder), workers=workers))
    yield Told(folder)
    if serving._here.ledger._at_end is not None:
        serving._here.ledger._at_end.cancel()


def batches(loader: Any) -> list[torch.Tensor]:
    return [batch.clone() for batch in loader]


def seeded(make: Any, **arguments: Any) -> list[torch.Tensor]:
    torch.manual_seed(7)
    with_shuffle = {"batch_size": 4, "shuffle": True, **arguments}
    return batches(make(Numbers(), **with_shuffle))


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_every_loader_chooses_and_the_line_is_told(told: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, num_workers=3)  # this line
    assert loader._automatic
    batches(loader)
    (line,) = told()
    assert line.site.file == __file__
    assert line.site.code.endswith("# this line")
    assert (line.asked, line.automatic, line.epochs, line.batches) == ((3,), True, 1, 6)
    assert line.reason


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_whoever_chooses(tmp_path: Path, workers: int, told: Told) -> None:
    chosen = seeded(Loader, num_workers=workers)
    serving._here.begin(Settings("run", str(tmp_path), workers="keep"))
    kept = seeded(Loader, num_workers=workers)
    assert alike(chosen, kept)
    assert alike(kept, seeded(StokerLoader, num_workers=0))
    serving._here.ledger.write()


def test_the_programs_number_is_kept_where_that_is_asked(keeping: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, num_workers=1)
    assert loader.num_workers == 1
    assert not isinstance(loader.num_workers, AutoWorkers)
    batches(loader)
    (line,) = keeping()
    assert (line.workers, line.automatic, line.asked) == ((1, 1), False, (1,))
    assert Loader(Numbers()).num_workers == 0
    assert Loader(Numbers()).persistent_workers is False


def test_an_iterable_data_set_keeps_the_programs_number(told: Told) -> None:
    loader = Loader(Stream(), batch_size=2, num_workers=2)
    assert [batch.tolist() for batch in loader] == [
        batch.tolist() for batch in TorchLoader(Stream(), batch_size=2, num_workers=2)
    ]
    assert told()[0].workers == (2, 2)
    assert Loader(Stream()).num_workers == 0


def refusal(make: Any, *args: Any, **kwargs: Any) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        list(make(*args, **kwargs))
    return type(caught.value), str(caught.value).replace("DataLoader.__init__", "__init__")


@pytest.mark.parametrize(
    "arguments",
    [
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"num_workers": -1},
        {"num_workers": None},
        {"timeout": -1, "num_workers": 1},
        {"timeout": 3},
        {"shuffle": True, "sampler": [1, 2]},
        {"batch_size": 0},
        {"nonsense": 1},
        {"seed": 1},
        {"multiprocessing_context": "nonsense", "num_workers": 1},
    ],
    ids=str,
)
def test_what_torch_refuses_is_refused_in_its_words(told: Told, arguments: Any) -> None:
    assert refusal(Loader, Numbers(), **arguments) == refusal(TorchLoader, Numbers(), **arguments)
    assert refusal(Loader) == refusal(TorchLoader)


def test_a_chosen_number_of_none_is_handed_on_with_what_is_for_workers(told: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, num_workers=AutoWorkers(0), prefetch_factor=3)
    batches(loader)
    (line,) = told()
    assert line.automatic


def test_an_error_of_the_data_sets_stays_its_own(told: Told) -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise LookupError("sample 3 is broken")

    with pytest.raises(LookupError, match="sample 3 is broken"):
        list(Loader(Broken(), num_workers=2))
    with pytest.raises(ZeroDivisionError):
        list(Loader(Numbers(), sampler=_Failing()))


class _Failing:
    def __iter__(self) -> Iterator[int]:
        raise ZeroDivisionError

    def __len__(self) -> int:
        return 3


def test_what_stoker_refuses_and_torch_takes_runs_on_torchs(told: Told) -> None:
    loader = Loader(Numbers(4), num_workers=1, prefetch_factor=0, batch_size=2)
    assert type(loader) is Loader
    assert not hasattr(loader, "memory_limit")
    assert not hasattr(loader, "on_timeout")
    (line,) = told()
    assert "prefetch_factor option should be at least 1" in line.fallback
    assert line.workers == (1, 1)


class TakesOver(Loader):  # type: ignore[misc]
    def _get_iterator(self) -> Any:
        return super()._get_iterator()


class MakesItsOwn(Loader):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter([torch.zeros(1)])


class GoesOn(Loader):  # type: ignore[misc]
    def __iter__(self) -> Any:
        yield from super().__iter__()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (TakesOver, "TakesOver._get_iterator replaces a private part of PyTorch's loader"),
        (MakesItsOwn, "MakesItsOwn.__iter__ replaces PyTorch's and never calls it"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_class_that_takes_over_runs_on_torchs(
    told: Told, kind: Any, why: str, workers: int
) -> None:
    torch.manual_seed(3)
    loader = kind(Numbers(8), batch_size=4, shuffle=True, num_workers=workers)
    ours = batches(loader)
    assert loader.num_workers == workers
    (line,) = told()
    assert line.fallback == why
    if kind is TakesOver:
        torch.manual_seed(3)
        plain = TorchLoader(Numbers(8), batch_size=4, shuffle=True, num_workers=workers)
        assert alike(ours, batches(plain))


def test_a_class_that_only_adds_is_served(told: Told) -> None:
    assert taken_over(GoesOn, Loader) == ""
    loader = GoesOn(Numbers(), batch_size=4)
    assert len(batches(loader)) == 6
    assert told()[0].fallback == ""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("generator", [True, False])
def test_a_loader_that_stoker_cannot_begin_goes_on_with_torchs(
    told: Told, monkeypatch: pytest.MonkeyPatch, workers: int, generator: bool
) -> None:
    def fail(self: Any) -> None:
        torch.rand(1, generator=self.generator)  # as far as drawing the order it came
        raise TransportError("no shared memory is to be had")

    monkeypatch.setattr(StokerLoader, "_get_iterator", fail)
    own = {"generator": torch.Generator().manual_seed(5)} if generator else {}
    loader = functools.partial(Loader, persistent_workers=workers > 0, **own)
    ours = seeded(loader, num_workers=workers)
    own = {"generator": torch.Generator().manual_seed(5)} if generator else {}
    assert alike(ours, seeded(TorchLoader, num_workers=workers, **own))
    (line,) = told()
    assert line.fallback == "no shared memory is to be had"
    assert line.workers == (workers, workers)


def test_a_function_for_workers_does_not_run_where_the_program_has_none(told: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, worker_init_fn=_never)
    assert len(batches(loader)) == 6
    assert loader.worker_init_fn is _never
    assert loader.statistics().peak_workers == 0


def _never(number: int) -> None:
    raise AssertionError("a worker was not asked for")


def test_a_library_that_rebuilds_a_loader_keeps_what_was_asked(told: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, num_workers=5)
    names = [n for n in inspect.signature(TorchLoader).parameters if n in vars(loader)]
    left_out = {"batch_size", "sampler", "drop_last"}
    rebuilt = Loader(**{name: getattr(loader, name) for name in names if name not in left_out})
    assert rebuilt._automatic
    assert serving._care(rebuilt).asked == 5  # type: ignore[union-attr]
    assert len(batches(rebuilt)) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_reads_the_plain_number_that_it_gave(told: Told, workers: int) -> None:
    """It may be written to a file by what knows nothing but ints, or looked up in a table."""
    loader = Loader(Numbers(), batch_size=4, num_workers=workers)
    for _ in range(3):
        batches(loader)
        assert type(loader.num_workers) is int
        assert loader.num_workers == workers
    assert type(copy.copy(loader).num_workers) is int


def test_stokers_own_class_reads_as_it_always_does(told: Told) -> None:
    loader = serving._OwnDataLoader(Numbers(), batch_size=4)
    assert loader._automatic
    assert isinstance(loader.num_workers, AutoWorkers)


def test_a_copy_is_served_too(told: Told) -> None:
    loader = Loader(Numbers(), batch_size=4, num_workers=2)
    twin = copy.copy(loader)
    assert len(batches(twin)) == 6
    assert sum(line.batches for line in told()) == 6
    fallen = Loader(Numbers(4), num_workers=1, prefetch_factor=0)
    assert copy.copy(fallen)._get_iterator.__func__ is Loader._get_iterator


def test_setting_the_number_is_remembered_and_not_obeyed(told: Told) -> None:
    loader = Loader(Numbers())
    loader.num_workers = 6
    assert loader._automatic
    assert loader.num_workers == 6
    assert serving._care(loader).asked == 6  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 3


def test_many_loaders_of_a_line_cost_one_line(told: Told) -> None:
    for _ in range(50):
        batches(Loader(Numbers(4), batch_size=2))
    (line,) = told()
    assert (line.made, line.epochs, line.batches) == (50, 50, 100)
    assert not serving._here.ledger._live


def test_a_loader_that_is_dropped_is_counted_until_its_iterator_ends(told: Told) -> None:
    counts = [told()[0].batches for _ in Loader(Numbers(), batch_size=4)]
    assert counts == [1, 2, 3, 4, 5, 6]
    assert told()[0].batches == 6
    assert not serving._here.ledger._live


def test_a_loader_that_is_gone_is_shown_to_nobody(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iteration, "_FIRST_TELL_S", 0.0)
    shown = [_shown() for _ in Loader(Numbers(), batch_size=4)]
    assert shown == [1] * 6
    assert _shown() == 0
    loader = Loader(Numbers(), batch_size=4)
    batches(loader)
    assert _shown() == 1
    del loader
    assert _shown() == 0


def _shown() -> int:
    return sum(board.pid == os.getpid() for board in read_boards(os.getpid()))


def test_in_a_daemon_torchs_is_left(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serving.multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert not isinstance(Loader(Numbers()).num_workers, AutoWorkers)
    assert "daemonic" in told()[0].fallback


def test_a_folder_that_is_gone_does_not_matter(told: Told) -> None:
    serving._here.ledger._folder = Path("/nowhere/at/all")
    assert len(batches(Loader(Numbers(), batch_size=4))) == 6


@pytest.mark.parametrize("version", ["2.7.1", "1.13.0+cu117", "2.7.0a0"])
def test_an_old_torch_is_refused(version: str) -> None:
    with pytest.raises(Exception, match="is older than"):
        check_torch(version)


@pytest.mark.parametrize("version", ["2.8.0", "2.13.0+cpu", "3.0.0a0"])
def test_a_newer_torch_is_not(version: str) -> None:
    check_torch(version)
