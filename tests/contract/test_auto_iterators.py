"""Iterators of an automatic loader: several at once, left, dropped, and after errors."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker.errors import WorkerDied
from tests.contract.automatic import (
    FORK,
    begun,
    epoch_with,
    firsts,
    loader,
    needs_still,
    pids,
    reasons,
    still,
)
from tests.contract.methods import answers
from tests.contract.test_pinning import Accelerator, accelerator, pin_threads
from tests.contract.test_resizing import all_come_up
from tests.datasets import (
    Failing,
    Gated,
    Plain,
    Telling,
)
from tests.faults.scripts import are_gone

__all__ = ["accelerator", "still"]


@needs_still
class TestIterators:
    def test_each_is_a_new_object(self) -> None:
        made = loader(Plain(4))
        first, second = iter(made), iter(made)
        assert first is not second
        assert iter(first) is first
        assert len(first) == 4

    @pytest.mark.parametrize("workers", [0, 2])
    def test_two_at_once_are_complete(self, workers: int) -> None:
        made = loader(Telling(12), batch_size=2)
        epoch_with(made, workers)
        pairs = list(zip(made, made, strict=True))
        for side in (0, 1):
            assert firsts([pair[side] for pair in pairs]) == list(range(12))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_nested_ones_are_complete(self, workers: int) -> None:
        made = loader(Telling(8), batch_size=2)
        epoch_with(made, workers)
        outer = []
        for batch in made:
            outer.append(batch)
            assert firsts(list(made)) == list(range(8))
        assert firsts(outer) == list(range(8))

    def test_two_at_once_with_workers_each(self) -> None:
        made = loader(Telling(40), batch_size=2)
        (one, first), (other, second) = begun(made), begun(made)
        assert not set(pids(one)) & set(pids(other))
        rest = list(zip(one, other, strict=True))
        assert firsts([first, *(a for a, _ in rest)]) == list(range(40))
        assert firsts([second, *(b for _, b in rest)]) == list(range(40))
        assert firsts(list(made)) == list(range(40))

    def test_workers_are_not_kept_twice(self) -> None:
        made = loader(Telling(40), batch_size=2)
        (one, _), (other, _) = begun(made), begun(made)
        both = [*pids(one), *pids(other)]
        list(one), list(other)
        left = [pid for pid in both if not are_gone([pid], 0.5)]
        assert len(left) == 2
        assert pids(iter(made)) == left

    @pytest.mark.parametrize("workers", [0, 2])
    def test_one_that_is_at_its_end_stays_there(self, workers: int) -> None:
        made = loader(Telling(12), batch_size=2)
        old, _ = begun(made, workers)
        assert len(list(old)) == 5
        new = iter(made)
        got = []
        for _ in range(6):
            assert next(old, None) is None
            got.append(next(new))
        assert next(old, None) is None
        assert next(new, None) is None
        assert firsts(got) == list(range(12))

    def test_an_older_one_goes_on_after_a_newer(self) -> None:
        made = loader(Telling(40), batch_size=2)
        old, first = begun(made)
        assert firsts(list(made)) == list(range(40))
        assert firsts([first, *old]) == list(range(40))

    @pytest.mark.parametrize("taken", [0, 3])
    def test_the_loader_may_be_dropped_before_its_iterator(self, taken: int) -> None:
        made = loader(Telling(40), batch_size=2)
        iterator, first = begun(made)
        got = [first, *itertools.islice(iterator, taken)]
        del made
        assert firsts([*got, *iterator]) == list(range(40))
        chosen = pids(iterator)
        del iterator
        gc.collect()
        assert are_gone(chosen, 2.0)

    @pytest.mark.parametrize("rest", [False, True], ids=["in the middle", "after an epoch"])
    @pytest.mark.parametrize("pin", [False, True], ids=["plain", "pinned"])
    def test_dropping_both_ends_the_workers_at_once(
        self, rest: bool, pin: bool, accelerator: Accelerator
    ) -> None:
        """And not when garbage happens to be collected."""
        made = loader(Plain(40, (200, 200)), batch_size=2, pin_memory=pin)
        iterator, _ = begun(made)
        next(iterator)
        if rest:
            list(iterator)
        chosen = pids(iterator)
        gc.disable()
        try:
            del iterator, made
            assert are_gone(chosen, 2.0)
            assert not pin_threads()
        finally:
            gc.enable()

    @pytest.mark.parametrize("how", ["drops", "asks"])
    def test_a_forked_copy_takes_nothing_from_it(self, how: str) -> None:
        made = loader(Telling(200), batch_size=2)
        iterator, first = begun(made)
        got = [first, next(iterator)]
        child = os.fork()
        if not child:
            code = 1
            try:
                if how == "drops":
                    del iterator
                    gc.collect()
                    code = 0
                else:
                    next(iterator)
            except stoker.errors.IteratorStopped:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert firsts([*got, *iterator]) == list(range(200))

    def test_a_forked_copy_takes_no_news_of_workers_that_come_up(self) -> None:
        made = loader(Telling(200), batch_size=2)
        iterator = iter(made)
        got = [next(iterator)]
        iterator.feed.resize(1, got[0])
        assert iterator.feed.feed._pool._waiter.wait(20), "no worker has come up"
        child = os.fork()
        if not child:
            with contextlib.suppress(stoker.errors.IteratorStopped):
                next(iterator)
            os._exit(0)
        os.waitpid(child, 0)
        all_come_up(iterator)
        assert firsts([*got, *iterator]) == list(range(200))


@needs_still
class TestExceptions:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("at", [0, 1, 4, 5, 9])
    def test_each_is_raised_in_its_place(self, workers: int, at: int) -> None:
        """With its own type, and the epoch goes on after it."""
        made = loader(Failing(10, at, LookupError(f"sample {at} is broken")))
        for _ in range(2):
            iterator = iter(made)
            iterator.feed.resize(workers)
            seen = list(answers(iterator))
            error = seen.pop(at)
            assert isinstance(error, LookupError)
            assert f"sample {at} is broken" in str(error)
            assert [int(batch[0, 0]) for batch in seen] == [n for n in range(10) if n != at]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_worker_that_fails_at_first_is_no_reason_where_the_main_process_fails_too(
        self, workers: int
    ) -> None:
        made = loader(Failing(20, 1, LookupError("sample 1 is broken")))
        iterator, _ = begun(made, workers)
        seen = list(answers(iterator))
        assert sum(isinstance(each, LookupError) for each in seen) == 1
        assert len(seen) == 19
        assert reasons(made) == []
        assert made.num_workers == workers

    @pytest.mark.parametrize("workers", [0, 2])
    def test_those_of_the_collate_function(self, workers: int) -> None:
        def collate(samples: list[Any]) -> int:
            number = int(samples[0][0])
            if number == 6:
                raise ZeroDivisionError(f"batch {number}")
            return number

        made = loader(Plain(20), batch_size=2, collate_fn=collate)
        iterator = iter(made)
        iterator.feed.resize(workers)
        seen = list(answers(iterator))
        assert isinstance(seen.pop(3), ZeroDivisionError)
        assert seen == [0, 2, 4, 8, 10, 12, 14, 16, 18]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_those_of_the_sampler(self, workers: int) -> None:
        def indices() -> Iterator[int]:
            yield from range(8)
            raise ArithmeticError("no more")

        made = loader(Plain(20), batch_size=1, sampler=indices())
        iterator = iter(made)
        first = next(iterator)
        iterator.feed.resize(workers, first)
        all_come_up(iterator) if workers else None
        seen = [first, *answers(iterator)]
        assert isinstance(seen.pop(), ArithmeticError)
        assert [int(batch[0, 0]) for batch in seen] == list(range(8))

    def test_a_worker_that_dies_is_one_and_the_next_epoch_works(self) -> None:
        made = loader(Plain(40, (1,)), max_restarts=0)
        iterator, _ = begun(made)
        os.kill(pids(iterator)[0], signal.SIGKILL)
        with pytest.raises(WorkerDied):
            list(iterator)
        with pytest.raises(RuntimeError, match="stopped before the epoch was over"):
            next(iterator)
        del iterator
        iterator = iter(made)
        assert len(pids(iterator)) == 2
        assert [int(batch) for batch in iterator] == list(range(40))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_ctrl_c_in_the_training_step(self, workers: int) -> None:
        made = loader(Telling(40), batch_size=2)
        with pytest.raises(KeyboardInterrupt):
            self._interrupted(made, workers)
        assert firsts(list(made)) == list(range(40))

    def _interrupted(self, made: Any, workers: int) -> None:
        iterator, _ = begun(made, workers)
        for number, _ in enumerate(iterator):
            if number == 2:
                raise KeyboardInterrupt

    def test_ctrl_c_while_the_main_process_makes_a_batch(self) -> None:
        dataset = Failing(20, 3, KeyboardInterrupt())
        made = loader(dataset)
        with pytest.raises(KeyboardInterrupt):
            list(made)
        dataset.at = -1
        assert len(list(made)) == 20

    def test_ctrl_c_while_a_batch_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = loader(Gated(20, 5, FORK.Event()))
        iterator, _ = begun(made)
        chosen = pids(iterator)

        def interrupted(timeout_s: float | None) -> Any:
            raise KeyboardInterrupt

        feed = iterator.feed.feed
        for _ in range(4):
            next(iterator)
        monkeypatch.setattr(feed._pool, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert are_gone(chosen, 2.0)
        del iterator
        made.dataset.at = -1  # Setting the gate would wait for those who were stopped at it.
        iterator = iter(made)
        assert len(pids(iterator)) == 2
        assert [int(batch[0, 0]) for batch in iterator] == list(range(20))
