"""``on_error=`` and ``max_errors=``: broken samples are let pass, the same for any workers."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, Sampler, SubsetRandomSampler, get_worker_info

import stoker
from stoker.errors import StreamEnded, TooManyErrors
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import begun, epoch_with, needs_still, reasons, still
from tests.contract.methods import answers, loader, many_workers
from tests.contract.test_pinning import accelerator
from tests.datasets import Drawing, OnlyInMain, Plain

__all__ = ["accelerator", "still"]
FORK = multiprocessing.get_context("fork")
LENGTH = 40
FLAWS = {3, 8, 9, 10, 11, 17, 24, 31, 38, 39}


class Flawed(Drawing):
    """Draws for every sample; some raise after that. Batch 2 of four is broken wholly."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if index in FLAWS:
            raise ValueError(f"sample {index} is broken")
        return sample


class FlawedLate(Plain):
    """Draws from sample 20 on only."""

    def __getitem__(self, index: int) -> Any:
        if index in FLAWS:
            raise ValueError(f"sample {index} is broken")
        return index, float(torch.rand(())) if index >= 20 else 0.0


class FlawedImages(Plain):
    """Batches lie in slots."""

    def __getitem__(self, index: int) -> Any:
        if index in FLAWS:
            raise ValueError(f"sample {index} is broken")
        return index, super().__getitem__(index)


def by_index(index: int, error: Exception) -> Any:
    """Leaves out, replaces or gives a value, by the index."""
    choice = (stoker.SKIP, stoker.REPLACE, (-index, *Drawing(1)[0][1:]))
    return choice[index % 3]


POLICIES: dict[str, Any] = {"skip": "skip", "replace": "replace", "function": by_index}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
KINDS: dict[str, dict[str, Any]] = {
    "1": {"num_workers": 1},
    "3": {"num_workers": 3, "prefetch_factor": 1},
    "2 persistent": {"num_workers": 2, "persistent_workers": True},
    "auto": {},
}


def make(policy: Any, dataset: Any = None, **options: Any) -> Any:
    if options.get("num_workers") != 0:
        options.setdefault("multiprocessing_context", "fork")
    data = Flawed(LENGTH) if dataset is None else dataset
    return stoker.DataLoader(data, **{"batch_size": 4} | options, on_error=policy)


def told(made: Any) -> Any:
    """What is told of broken samples."""
    found = made.statistics()
    counts = found.broken_samples, found.skipped_samples, found.skipped_batches
    return counts, found.batches, found.errors


def firsts(batches: list[Any]) -> list[list[int]]:
    """The indices in each batch."""
    return [batch[0].tolist() for batch in batches]


@many_workers
@every_policy
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_batches_and_what_is_told_do_not_depend_on_workers(
    policy: Any, options: dict[str, Any]
) -> None:
    here = make(policy, num_workers=0, shuffle=True, seed=3)
    there = make(policy, shuffle=True, seed=3, **options)
    assert_same([list(there) for _ in range(2)], [list(here) for _ in range(2)])
    assert told(there) == told(here)
    assert told(here)[0][0] >= 2 * len(FLAWS)


@many_workers
@needs_still
@every_policy
def test_workers_may_come_and_go_between_any_two_batches(policy: Any) -> None:
    here = make(policy, num_workers=0, seed=3)
    expected = [copied(batch) for batch in here]
    made = make(policy, seed=3)
    iterator, first = begun(made, 3)
    got = [first]
    for number, batch in enumerate(iterator):
        got.append(copied(batch))
        iterator.feed.resize((0, 2, 1)[number % 3], got[-1])
    assert_same(got, expected)
    assert told(made) == told(here)


@every_policy
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_batches_do_not_depend_on_the_start_method(policy: Any, method: str) -> None:
    expected = list(make(policy, num_workers=0, seed=3))
    made = make(policy, num_workers=1, seed=3, multiprocessing_context=method)
    assert_same(list(made), expected)


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
def test_skipped_samples_make_smaller_batches_and_empty_ones_are_skipped(num_workers: Any) -> None:
    made = make("skip", num_workers=num_workers)
    assert firsts(list(made)) == [
        [0, 1, 2],
        [4, 5, 6, 7],
        [12, 13, 14, 15],
        [16, 18, 19],
        [20, 21, 22, 23],
        [25, 26, 27],
        [28, 29, 30],
        [32, 33, 34, 35],
        [36, 37],
    ]
    assert len(made) == 10
    counts, batches, errors = told(made)
    assert (counts, batches) == ((10, 10, 1), 9)
    assert [each.index for each in errors] == sorted(FLAWS)
    assert [each.batch for each in errors] == [0, 2, 2, 2, 2, 4, 6, 7, 9, 9]
    assert errors[0].error == "ValueError: sample 3 is broken"
    assert "test_on_error.py:" in errors[0].where
    assert {each.outcome for each in errors} == {"skipped"}


@many_workers
@pytest.mark.parametrize("num_workers", [1, 3])
def test_out_of_order_the_same_batches_come(num_workers: int) -> None:
    expected = make("skip", num_workers=0, seed=3)
    made = make("skip", num_workers=num_workers, seed=3, in_order=False)
    got = sorted(made, key=lambda batch: int(batch[0][0]))
    assert_same(got, list(expected))
    assert told(made)[:2] == told(expected)[:2]
    by_index = {each.index: each.batch for each in told(made)[2]}
    assert by_index == {each.index: each.batch for each in told(expected)[2]}


def test_a_data_set_that_begins_to_draw_late_is_the_same() -> None:
    for policy in ("skip", "replace"):
        expected = list(make(policy, FlawedLate(LENGTH), num_workers=0, seed=3))
        assert_same(list(make(policy, FlawedLate(LENGTH), num_workers=2, seed=3)), expected)


def test_replaced_samples_keep_the_size_of_batches() -> None:
    made = make("replace", num_workers=0)
    batches = firsts(made)
    assert [len(batch) for batch in batches] == [4] * 10
    assert not {index for batch in batches for index in batch} & FLAWS
    found = made.statistics()
    assert (found.skipped_samples, found.skipped_batches) == (0, 0)
    assert {each.index for each in found.errors} == FLAWS
    assert {each.outcome for each in found.errors} == {"replaced"}


class Held(Sampler[int]):
    """A sampler of the user's, which keeps all above 20 for validation."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(20))

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": SubsetRandomSampler(range(20))},
        {"sampler": Held()},
        {"sampler": list(range(20))},
        {"batch_sampler": [[0, 1, 2, 3], [16, 17, 18]], "batch_size": 1},
        {"sampler": SubsetRandomSampler(range(20)), "batch_size": None},
    ],
    ids=["subset", "the user's", "list", "batches", "no batches"],
)
def test_no_sample_comes_in_that_the_sampler_leaves_out(
    options: dict[str, Any], num_workers: int
) -> None:
    made = make("replace", num_workers=num_workers, seed=3, **options)
    seen: set[int] = set()
    for answer in answers(iter(made)):  # Of the user's sampler, a whole batch may be broken.
        if isinstance(answer, Exception):
            assert isinstance(answer, TooManyErrors)
            assert isinstance(options.get("sampler"), Held)
            continue
        seen.update(torch.as_tensor(answer[0]).flatten().tolist())
    assert seen <= set(range(20)) - FLAWS
    assert seen


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 3, "auto"])
@pytest.mark.parametrize(("limit", "at"), [(0, 0), (4, 2), (5, 3), (0.15, 5), (9, 8), (10, None)])
def test_one_too_many_is_an_error_in_place_of_its_batch(
    num_workers: Any, limit: float, at: int | None
) -> None:
    made = make("skip", num_workers=num_workers, max_errors=limit)
    for _ in range(2):  # Each epoch has its own count.
        got = list(answers(iter(made)))
        places = [n for n, answer in enumerate(got) if isinstance(answer, Exception)]
        if at is None:
            assert not places
            continue
        assert places[0] == at
        assert isinstance(got[at], TooManyErrors)
        assert f"max_errors={limit!r}" in str(got[at])
        assert "is broken (" in str(got[at])


def test_an_epoch_of_nothing_but_errors_ends() -> None:
    class Gone(Plain):
        def __getitem__(self, index: int) -> Any:
            raise FileNotFoundError(f"{index}.jpg")

    made = make("skip", Gone(5000), num_workers=0, batch_size=50)
    with pytest.raises(TooManyErrors, match="1,000 samples in a row") as caught:
        list(made)
    assert "FileNotFoundError: 999.jpg" in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
def test_a_small_epoch_of_nothing_but_errors_is_no_empty_one(num_workers: Any) -> None:
    class Gone(Plain):
        there = False

        def __getitem__(self, index: int) -> Any:
            if not self.there:
                raise FileNotFoundError(f"{index}.jpg")
            return index

    made = make("skip", Gone(12), num_workers=num_workers, batch_size=4)
    iterator = iter(made)
    with pytest.raises(TooManyErrors, match=r"not one sample .* 12 were tried") as caught:
        next(iterator)
    assert "FileNotFoundError: 11.jpg" in str(caught.value)
    assert list(iterator) == []
    made.dataset.there = True
    assert len(list(made)) == 3
    allowed = make("skip", Gone(12), num_workers=num_workers, batch_size=4, max_errors=12)
    assert list(allowed) == []


@pytest.mark.parametrize("method", ["inline", "fork"])
@pytest.mark.parametrize("error", [MemoryError("no more"), OSError(errno.EMFILE, "too many files")])
def test_what_blames_the_process_is_raised(method: str, error: Exception) -> None:
    class Starved(Plain):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise error
            return super().__getitem__(index)

    with pytest.raises(type(error)):
        list(loader(Starved(8), method, on_error="skip"))


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_a_function_may_refuse(method: str) -> None:
    def refuse(index: Any, error: Exception) -> Any:
        raise LookupError(f"cannot go on without {index}") from error

    iterator = iter(loader(Flawed(LENGTH), method, batch_size=4, on_error=refuse))
    with pytest.raises(LookupError, match="cannot go on without 3"):
        next(iterator)
    assert firsts([next(iterator)]) == [[4, 5, 6, 7]]
    del iterator


def test_a_function_runs_where_the_sample_is_read() -> None:
    def where(index: Any, error: Exception) -> Any:
        return os.getpid(), *Drawing(1)[0][1:]

    for num_workers in (0, 1):
        made = make(where, num_workers=num_workers)
        pid = int(next(iter(made))[0][3])
        assert (pid == os.getpid()) == (num_workers == 0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_large_batches_leave_nothing_behind(num_workers: int) -> None:
    for policy in ("skip", "replace"):
        made = make(policy, FlawedImages(LENGTH, (64, 64)), num_workers=num_workers)
        for _ in range(3):
            for index, image in made:
                assert bool((image == index[:, None, None]).all())


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
def test_pinned_batches_are_the_same(num_workers: Any) -> None:
    made = make("skip", FlawedImages(LENGTH, (8,)), num_workers=num_workers, pin_memory=True)
    assert firsts(list(made))[:3] == [[0, 1, 2], [4, 5, 6, 7], [12, 13, 14, 15]]
    assert told(made)[:2] == ((10, 10, 1), 9)


@pytest.mark.parametrize("num_workers", [2, "auto"])
@needs_still
def test_batches_that_are_made_again_count_once(num_workers: Any) -> None:
    """An idle loader gives back what it has ready."""
    expected = make("skip", num_workers=0, seed=3)
    rest = [copied(batch) for batch in expected]
    made = make("skip", num_workers=num_workers, seed=3)
    iterator, first = begun(made) if num_workers == "auto" else ((i := iter(made)), next(i))
    feed = made._account._worker_feed()
    while any(feed._dispatcher.running(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))
    feed.put_back()
    assert_same([first, *iterator], rest)
    assert told(made) == told(expected)


def test_single_samples_are_left_out_too() -> None:
    for num_workers in (0, 2):
        made = make("skip", num_workers=num_workers, batch_size=None)
        assert [sample[0] for sample in made] == sorted(set(range(LENGTH)) - FLAWS)
        assert told(made)[:2] == ((10, 10, 10), 30)


class InBatches(Flawed):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


@every_policy
def test_data_sets_that_read_whole_batches(policy: Any) -> None:
    here = make(policy, InBatches(LENGTH), num_workers=0, seed=3)
    expected = list(here)
    made = make(policy, InBatches(LENGTH), num_workers=2, seed=3)
    assert_same(list(made), expected)
    assert told(made) == told(here)
    assert len(told(made)[2]) == len(FLAWS)


class Shards(IterableDataset[Any]):
    """Each worker's numbers, by an iterator that goes on after an error."""

    def __init__(self, lengths: list[int], flaws: Any) -> None:
        self.lengths = lengths
        self.flaws = flaws

    def __iter__(self) -> Any:
        info = get_worker_info()
        self.shard = info.id if info is not None else 0
        self.left = iter(range(self.lengths[self.shard]))
        return _Counter(self.left, self.shard, self.flaws)


class _Counter:
    def __init__(self, left: Any, shard: int, flaws: Any) -> None:
        self.left, self.shard, self.flaws = left, shard, flaws

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> tuple[int, int]:
        number = next(self.left)
        if (self.shard, number) in self.flaws:
            raise ValueError("broken")
        return self.shard, number


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 2, "auto"])
def test_a_stream_goes_on_where_its_iterator_does(num_workers: Any) -> None:
    flaws = {(0, 1), (0, 4), (0, 5), (1, 0)}
    lengths = [8, 5] if num_workers == 2 else [8]
    made = make("skip", Shards(lengths, flaws), num_workers=num_workers, batch_size=2)
    got = [list(zip(*map(torch.Tensor.tolist, batch), strict=True)) for batch in made]
    shards = [
        [[(0, 0)], [(0, 2), (0, 3)], [], [(0, 6), (0, 7)]],
        [[(1, 1)], [(1, 2), (1, 3)], [(1, 4)], []],
    ]
    rounds = zip(*shards[: len(lengths)], strict=True)
    assert got == [batch for turn in rounds for batch in turn if batch]
    assert told(made)[0] == (4, 4, 1) if num_workers == 2 else (3, 3, 1)


class Generated(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        raise ValueError("broken")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_generator_cannot_go_on_and_the_epoch_does_not_end_early(num_workers: int) -> None:
    got = list(answers(iter(make("skip", Generated(), num_workers=num_workers, batch_size=2))))
    assert [x.tolist() for x in got[:2]] == [[0, 1], [2, 3]]
    assert isinstance(got[2], StreamEnded)
    assert "ValueError: broken" in str(got[2])
    assert len(got) == 3


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_stream_of_nothing_but_errors_ends(num_workers: int) -> None:
    class Down(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            raise ConnectionError("the server is down")

    made = make("skip", Down(), num_workers=num_workers, batch_size=100)
    with pytest.raises(TooManyErrors, match="ConnectionError: the server is down"):
        next(iter(made))


@needs_still
@pytest.mark.parametrize("policy", ["skip", "replace", lambda index, error: torch.zeros(3)])
def test_samples_that_only_the_main_process_can_read_are_not_left_out(policy: Any) -> None:
    """Where the loader chooses its workers, the main process has the last word."""
    made = make(policy, OnlyInMain(30), batch_size=2)
    batches = epoch_with(made, 2)
    assert [batch[:, 0].tolist() for batch in batches] == [[n, n + 1] for n in range(0, 30, 2)]
    assert told(made)[0] == (0, 0, 0)
    assert made.num_workers == 0
    assert len([reason for reason in reasons(made) if "raise" in reason]) == 1


@needs_still
def test_workers_whose_first_batch_is_broken_anyway_stay() -> None:
    class LateFlaws(Plain):
        def __getitem__(self, index: int) -> Any:
            if 4 <= index < 16:
                raise ValueError("broken")
            return super().__getitem__(index)

    made = make("skip", LateFlaws(40))
    batches = epoch_with(made, 2)
    assert [int(batch[0, 0]) for batch in batches] == [0, *range(16, 40, 4)]
    assert told(made)[0] == (12, 12, 3)
    assert made.statistics().num_workers == 2
    del made


def test_it_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stoker"):
        made = make("skip", num_workers=2)
        for _ in range(2):
            list(made)
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "could not be read so far: 1;" in text]) == 1
    assert "index 3" in texts[0]
    assert len(texts) == 2


def test_the_table_tells_of_them() -> None:
    made = make("skip", num_workers=0)
    assert "could not be read" not in str(made.statistics())
    list(made)
    text = str(made.statistics())
    assert "samples that could not be read" in text
    assert "10 (left out: 10 in all, and 1 batch whole)" in text
    assert "index 3, batch 0: ValueError: sample 3 is broken" in text
    assert "further ones are in .errors" in text


def test_what_was_let_pass_is_counted_over_all_epochs() -> None:
    made = make("skip", num_workers=0)
    for _ in range(3):
        list(made)
    assert told(made)[0] == (30, 30, 3)
    assert [(each.index, each.times) for each in told(made)[2]] == [(n, 3) for n in sorted(FLAWS)]
