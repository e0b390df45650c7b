"""Workers that hang: what is told of them, and how the epoch goes on without them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from stoker.errors import WaitTimeout
from stoker.feed import patience, vigil
from stoker.workers.process import ProcessPool
from tests.contract.methods import loader
from tests.datasets import Drawing, Plain

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts workers by fork")
FORK = multiprocessing.get_context("fork")
_ARENA = FORK.Value("i", 0)
"""multiprocessing keeps the file that the first of these lies in for the next."""


def wait_for_a_lock_nobody_gives_back() -> None:
    FORK.Event().wait()


def loop_for_ever() -> None:
    while True:
        pass


def stop_oneself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Hanging(Drawing):
    """Index `at` hangs, the first few times that any process reads it; draws besides."""

    def __init__(self, length: int, at: int, how: Callable[[], None], times: int = 1000) -> None:
        super().__init__(length)
        self.at, self.how, self.left = at, how, FORK.Value("i", times)

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            with self.left:
                self.left.value -= 1
                hangs = self.left.value >= 0
            if hangs:
                self.how()
        return super().__getitem__(index)


class HangingStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        wait_for_a_lock_nobody_gives_back()


def timed_out(dataset: Any, **options: Any) -> WaitTimeout:
    """The error of an epoch that hangs; its iterator is dropped."""
    with pytest.raises(WaitTimeout) as caught:
        list(loader(dataset, "fork", **options))
    return caught.value


@pytest.mark.parametrize(
    ("how", "condition"),
    [
        (wait_for_a_lock_nobody_gives_back, "stuck"),
        (loop_for_ever, "slow crowded"),  # By how busy this machine is.
        (stop_oneself, "stopped"),
    ],
)
def test_a_time_out_names_the_worker_and_shows_where_it_is(
    how: Callable[[], None], condition: str
) -> None:
    error = timed_out(Hanging(40, 9, how), batch_size=4, timeout=1)
    assert isinstance(error, RuntimeError)
    assert isinstance(error, TimeoutError)
    assert error.batch == 2
    first = error.workers[0]
    assert (first.batch, first.indices) == (2, [8, 9, 10, 11])
    assert first.condition in condition
    assert first.for_s >= 0.5
    text = str(error)
    assert text.startswith("DataLoader timed out after 1 seconds\n")
    assert f"worker {first.worker} (pid {first.pid}): batch 2" in text
    assert "sample indices [8, 9, 10, 11]" in text
    if condition != "stopped":
        assert f"in {how.__name__}" in text
        assert "in __getitem__" in text
        assert "multiprocessing/process.py" not in text


def test_of_a_stream_no_indices_are_invented() -> None:
    error = timed_out(HangingStream(), num_workers=1, batch_size=2, timeout=0.5)
    assert error.workers[0].indices is None
    assert "in __iter__" in str(error)


def test_a_worker_that_does_not_come_up_is_told_as_such() -> None:
    error = timed_out(
        Plain(4), num_workers=1, timeout=0.5, worker_init_fn=_never_ready, on_timeout="raise"
    )
    assert error.workers[0].condition == "starting"
    assert "in _never_ready" in str(error)
    assert "worker_init_fn" in error.likely


def _never_ready(_worker: int) -> None:
    wait_for_a_lock_nobody_gives_back()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute is over in no time."""
    monkeypatch.setattr(patience, "LEAST_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_S", 0.2)


class _Logged:
    """Opens a gate after some records were logged; they are kept."""

    def __init__(self, gate: Any, after: int) -> None:
        self.gate, self.after, self.texts = gate, after, list[str]()

    def __call__(self, record: logging.LogRecord) -> bool:
        self.texts.append(record.getMessage())
        if len(self.texts) >= self.after:
            self.gate.set()
        return True


class _Gated(Plain):
    def __init__(self, length: int, at: int, gate: Any) -> None:
        super().__init__(length)
        self.at, self.gate = at, gate

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            self.gate.wait()
        return super().__getitem__(index)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("in_order", [True, False])
def test_without_a_time_out_it_is_told_by_itself_and_again(in_order: bool) -> None:
    gate = FORK.Event()
    seen, log = _Logged(gate, after=2), logging.getLogger("stoker")
    log.addFilter(seen)
    try:
        batches = list(loader(_Gated(12, 5, gate), "fork", 2, in_order=in_order))
    finally:
        log.removeFilter(seen)
    assert len(batches) == 12
    assert len(seen.texts) >= 2
    for text in seen.texts[:2]:
        assert text.startswith("waiting for batch 5, for 0." if in_order else "waiting for any")
        assert "batch 5, sample indices [5]" in text
        assert "stuck" in text
        assert "in __getitem__" in text
        assert "timeout=" in text


@pytest.mark.usefixtures("impatient")
def test_a_data_set_that_is_as_slow_as_ever_is_no_news(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 60.0)

    class Slow(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.05)
            return super().__getitem__(index)

    list(loader(Slow(12), "fork", 1, batch_size=6, prefetch_factor=1))
    assert [r.getMessage() for r in caplog.records if r.name == "stoker"] == []


def test_nothing_is_told_of_a_wait_that_is_short(caplog: pytest.LogCaptureFixture) -> None:
    list(loader(Plain(40), "fork", 2))
    assert not [record for record in caplog.records if record.name == "stoker"]


def epoch(dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(5)
    return list(loader(dataset, "fork", **options))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_retry_makes_the_batch_again_bit_for_bit(
    in_order: bool, persistent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def drawn(times: int) -> list[Any]:
        batches = epoch(
            Hanging(24, 9, wait_for_a_lock_nobody_gives_back, times),
            batch_size=4,
            in_order=in_order,
            timeout=1,
            on_timeout="retry",
            persistent_workers=persistent,
        )
        return sorted(batches, key=lambda batch: batch[0].tolist())

    assert str(drawn(1)) == str(drawn(0))
    (text,) = [r.getMessage() for r in caplog.records if "batch 2" in r.getMessage()]
    assert "did not come within 1 s" in text
    assert "in wait_for_a_lock_nobody_gives_back" in text


def test_retry_is_an_error_when_the_batch_hangs_again() -> None:
    dataset = Hanging(24, 9, wait_for_a_lock_nobody_gives_back)
    made = loader(dataset, "fork", batch_size=4, timeout=0.4, on_timeout="retry")
    iterator, numbers = iter(made), list[int]()
    with pytest.raises(WaitTimeout, match="batch 2 was tried 2 times"):
        numbers.extend(batch[0].tolist()[0] for batch in iterator)
    assert numbers == [0, 4]
    assert dataset.left.value == 1000 - 2
    assert made.statistics().timed_out >= 1
    del iterator


@pytest.mark.parametrize("in_order", [True, False])
def test_skip_leaves_the_batch_out_and_counts_it(in_order: bool) -> None:
    dataset = Hanging(24, 9, wait_for_a_lock_nobody_gives_back)
    made = loader(dataset, "fork", batch_size=4, timeout=0.4, on_timeout="skip", in_order=in_order)
    for epochs in (1, 2):
        firsts = [batch[0].tolist()[0] for batch in made]
        assert sorted(firsts) == [0, 4, 12, 16, 20]
        assert firsts == sorted(firsts) or not in_order
        told = made.statistics()
        assert (told.timed_out, told.left_out) == (epochs, epochs)
    assert any("left out" in remark for remark in told.remarks)


def test_skip_of_the_last_batch_ends_the_epoch() -> None:
    dataset = Hanging(12, 11, wait_for_a_lock_nobody_gives_back)
    made = loader(dataset, "fork", batch_size=4, timeout=0.4, on_timeout="skip")
    assert [batch[0].tolist()[0] for batch in made] == [0, 4]


def test_of_a_stream_nothing_can_be_left_out() -> None:
    error = timed_out(HangingStream(), num_workers=1, batch_size=2, timeout=0.4, on_timeout="skip")
    assert "iterable" in str(error)


def test_a_start_that_hangs_is_tried_twice_and_no_batch_is_left_out_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vigil, "START_S", 0.5)
    error = timed_out(
        Plain(4), num_workers=1, timeout=0.4, worker_init_fn=_never_ready, on_timeout="skip"
    )
    assert error.workers[0].condition == "starting"


def test_what_is_chosen_automatically_goes_on_as_well() -> None:
    dataset = Hanging(24, 9, wait_for_a_lock_nobody_gives_back, 1)
    made: Any = stoker.DataLoader(
        dataset, 4, timeout=0.5, on_timeout="retry", multiprocessing_context="fork"
    )
    assert [batch[0].tolist()[0] for batch in made] == [0, 4, 8, 12, 16, 20]


class HangingOnceStream(IterableDataset[int]):
    """Hangs at its fifth sample, in the first iterator that comes there; draws besides."""

    def __init__(self, times: int) -> None:
        self.left = FORK.Value("i", times)

    def __iter__(self) -> Iterator[Any]:
        for number in range(12):
            if number == 5:
                with self.left:
                    self.left.value -= 1
                    hangs = self.left.value >= 0
                if hangs:
                    wait_for_a_lock_nobody_gives_back()
            yield number, float(torch.rand(()))


def test_retry_runs_a_stream_again_to_where_it_hung() -> None:
    def drawn(times: int) -> str:
        stream = HangingOnceStream(times)
        return str(epoch(stream, num_workers=1, batch_size=2, timeout=1, on_timeout="retry"))

    assert drawn(1) == drawn(0)


def test_replacing_on_a_time_out_is_no_restart_of_max_restarts() -> None:
    dataset = Hanging(16, 9, wait_for_a_lock_nobody_gives_back, 1)
    made = loader(dataset, "fork", batch_size=4, timeout=1, on_timeout="retry", max_restarts=0)
    assert [batch[0].tolist()[0] for batch in made] == [0, 4, 8, 12]
    assert made.statistics().replaced == 0


@pytest.mark.parametrize("on_timeout", ["retry", "skip"])
def test_a_batch_that_comes_just_before_its_worker_is_killed_is_not_lost(
    on_timeout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = FORK.Event()
    kill = ProcessPool.kill

    def late_kill(pool: ProcessPool, worker: int, why: str) -> Any:
        gate.set()
        assert pool._members[worker].connection.poll(20)  # Its answer is in the pipe.
        return kill(pool, worker, why)

    monkeypatch.setattr(ProcessPool, "kill", late_kill)
    made = loader(_Gated(8, 5, gate), "fork", prefetch_factor=1, timeout=0.5, on_timeout=on_timeout)
    assert torch.cat(list(made))[:, 0].tolist() == list(range(8))
    assert made.statistics().left_out == 0


def test_a_process_that_was_stopped_itself_blames_nobody() -> None:
    """The time-out is over when it comes back, and all its batches are there."""
    iterator = iter(loader(_Pausing(12, 5), "fork", 2, prefetch_factor=1, timeout=1))
    assert len(list(iterator)) == 12
    del iterator


class _Pausing(Plain):
    """At one index the worker stops the main process, for longer than the time-out."""

    def __init__(self, length: int, at: int) -> None:
        super().__init__(length)
        self.at = at

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(os.getppid(), signal.SIGCONT)
        return super().__getitem__(index)
