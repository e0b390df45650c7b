"""The program gets as many batches in an epoch as without being watched, and real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler

from stoker.tuning.probing import Setting
from tests.datasets import Plain
from tests.watch.watching import Watch, scripted, watched

SWITCHES = [
    ("own", 0, 2),
    ("search", 1, 3),
    ("search", 2, 3),
    ("confirm", 0, 2),
    ("confirm", 2, 4),
    ("extras", Setting(1, "torch", 4), 2),
    ("replay", 2, 3),
]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with scripted(*SWITCHES), watched(tmp_path) as found:
        yield found


def numbers(batch: torch.Tensor) -> list[float]:
    return [float(each) for each in batch[:, 0]]


@pytest.mark.parametrize("drop_last", [False, True])
def test_every_epoch_has_the_batches_of_the_loader_whatever_is_tried(
    watch: Watch, drop_last: bool
) -> None:
    loader = DataLoader(Plain(31), batch_size=4, drop_last=drop_last)
    epochs = [sum(1 for _ in loader) for _ in range(12)]
    assert epochs == [len(loader)] * 12
    assert watch.site.done
    assert not watch.failed()


def test_until_another_setting_is_tried_the_order_is_the_programs_own(tmp_path: Path) -> None:
    def order() -> list[list[float]]:
        torch.manual_seed(5)
        loader = DataLoader(Plain(20), batch_size=4, shuffle=True)
        return [numbers(batch) for _ in range(2) for batch in loader]

    plain = order()
    with scripted(("own", 0, 1000)), watched(tmp_path):
        assert order() == plain


class Backwards(Sampler[int]):
    """Every second index from the end, once each time it is iterated."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length // 2

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length - 1, 0, -2))


def test_a_sampler_of_the_users_own_says_what_is_in_every_batch(watch: Watch) -> None:
    loader = DataLoader(Plain(24), batch_size=3, sampler=Backwards(24))
    for _ in range(6):
        seen = [numbers(batch) for batch in loader]
        assert len(seen) == 4
        assert all(number % 2 for batch in seen for number in batch)


def test_a_batch_sampler_of_the_users_own_says_how_large_batches_are(watch: Watch) -> None:
    batches = BatchSampler(RandomSampler(Plain(23)), 5, drop_last=False)
    loader = DataLoader(Plain(23), batch_sampler=batches)
    for _ in range(6):
        assert [len(batch) for batch in loader].count(5) >= 3


def collated(samples: list[torch.Tensor]) -> dict[str, Any]:
    return {"numbers": torch.stack(samples), "names": [str(int(each[0])) for each in samples]}


def test_batches_are_what_the_users_collate_makes_of_the_data_set(watch: Watch) -> None:
    loader = DataLoader(Plain(16), batch_size=4, collate_fn=collated, shuffle=True)
    for _ in range(6):
        for batch in loader:
            assert batch["names"] == [str(int(number)) for number in batch["numbers"][:, 0]]


def test_samples_come_one_by_one_without_a_batch_size(watch: Watch) -> None:
    loader = DataLoader(Plain(15), batch_size=None)
    for _ in range(4):
        assert [each.shape for each in loader] == [torch.Size([3])] * 15


def test_a_loader_that_is_made_anew_for_every_epoch_is_one_line(watch: Watch) -> None:
    counts = []
    for _ in range(8):
        loader = DataLoader(Plain(20), batch_size=2)
        counts.append(sum(1 for _ in loader))
    assert counts == [10] * 8
    assert watch.site.made == 8
    assert watch.site.done


def test_a_loop_that_is_left_early_is_measured_all_the_same(watch: Watch) -> None:
    loader = DataLoader(Plain(4000), batch_size=2)
    for _ in range(40):
        for number, _ in enumerate(loader):
            if number == 5:
                break
        if watch.site.done:
            break
    assert watch.site.done


def test_two_iterators_of_one_loader_each_have_a_whole_epoch(watch: Watch) -> None:
    loader = DataLoader(Plain(20), batch_size=2)
    for _ in range(4):
        pairs = list(zip(loader, loader, strict=True))
        assert len(pairs) == 10
    assert not watch.failed()


def test_the_first_of_two_iterators_goes_on_where_it_was(tmp_path: Path) -> None:
    with scripted(("own", 0, 1000)), watched(tmp_path):
        loader = DataLoader(Plain(8), batch_size=2)
        first = iter(loader)
        began = [numbers(next(first)), numbers(next(first))]
        second = [numbers(batch) for batch in loader]
        assert second == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert began + [numbers(batch) for batch in first] == second


def test_workers_that_stay_serve_every_epoch(tmp_path: Path) -> None:
    steps = [("own", 2, 3), ("search", 1, 3), ("confirm", 2, 3), ("confirm", 1, 3)]
    with scripted(*steps), watched(tmp_path) as watch:
        loader = DataLoader(Plain(36), batch_size=2, num_workers=2, persistent_workers=True)
        assert [sum(1 for _ in loader) for _ in range(4)] == [18] * 4
        assert watch.site.done
        assert not watch.failed()
        del loader


class Repeating:
    """A batch sampler without an end, as libraries use to keep workers from epoch to epoch."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


class KeepsItsIterator(DataLoader[Any]):
    """One iterator without an end; its epochs are counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Repeating(self.batch_sampler)
        self._DataLoader__initialized = True
        self.endless = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.endless)


def test_a_loader_that_counts_its_epochs_from_one_endless_iterator_goes_on(watch: Watch) -> None:
    loader = KeepsItsIterator(Plain(12), batch_size=3)
    assert [sum(1 for _ in loader) for _ in range(8)] == [4] * 8
    assert not watch.failed()


class Stream(IterableDataset[int]):
    """The numbers 0 to `length` - 1, shared among workers by stride."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()  # as a module sees it that is imported later
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(first, self.length, step))


class Unaware(IterableDataset[torch.Tensor]):
    """As many tensors from every worker, however many there are."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.full((3,), float(number)) for number in range(self.length))


def test_an_iterable_data_set_that_shares_itself_out_is_tried_with_workers(watch: Watch) -> None:
    loader = DataLoader(Stream(40), batch_size=2)
    epochs = [sum(1 for _ in loader) for _ in range(8)]
    assert epochs[0] == 20
    assert set(epochs[1:]) == {20}
    assert watch.site.done
    assert not watch.told()


def test_an_iterable_data_set_that_does_not_is_never_read_twice(watch: Watch) -> None:
    loader = DataLoader(Unaware(40), batch_size=2)
    epochs = [sum(1 for _ in loader) for _ in range(6)]
    assert epochs == [20] * 6
    assert any("2 workers would change what is read" in what for what in watch.told())
    assert watch.site.done


def test_one_iterable_data_set_says_nothing_about_another(watch: Watch) -> None:
    aware, unaware = DataLoader(Stream(8), batch_size=2), DataLoader(Unaware(8), batch_size=2)
    for _ in range(3):
        assert sum(1 for _ in aware) == 4
        assert sum(1 for _ in unaware) == 4
    one, other = watch.sites
    assert one.record(whole=False).shards
    assert not other.record(whole=False).shards


def test_a_program_that_counts_and_asks_no_further_is_measured(watch: Watch) -> None:
    """Lightning does: it knows the length, and never hears of an epoch's end."""
    loader = DataLoader(Plain(20), batch_size=4)
    for _ in range(30):
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
    assert watch.site.done
    assert watch.site.ended >= 29
