"""Public cases of group L: shutdown, and what is left."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

import stoker
from tests.contract.methods import many_workers
from tests.faults.scripts import are_gone, program, program_within_s, run


def test_c111_an_inherited_iterator_is_left_alone_in_workers(tmp_path: Path) -> None:
    """Two loaders, the first persistent and alive; its copy is collected in workers."""
    source = """
    import gc
    first = stoker.DataLoader(Numbers(8), num_workers=2, persistent_workers=True)
    kept = iter(first)
    list(kept)

    class Collecting(Numbers):
        def __getitem__(self, index):
            global first, kept
            first = kept = None
            gc.collect()
            return super().__getitem__(index)

    list(stoker.DataLoader(Collecting(8), num_workers=2))
    say(f"first {len(list(first))}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, lines, error) == (0, ["first 8"], "")


def test_c112_ctrl_c_is_one_traceback(tmp_path: Path) -> None:
    """Four workers asleep in a sample, SIGINT to the group: all are gone in a second."""
    source = """
    import multiprocessing

    class Asleep(Numbers):
        def __getitem__(self, index):
            say("asleep")
            time.sleep(600)

    iterator = iter(stoker.DataLoader(Asleep(), num_workers=4))
    say(" ".join(["pids", *(str(worker.pid) for worker in iterator._workers)]))
    next(iterator)
    """
    with program(tmp_path, source) as running:
        pids: list[int] = []
        for _ in range(5):
            line = running.wait_for("")
            if line.startswith("pids"):
                pids = [int(pid) for pid in line.split()[1:]]
        running.interrupt()
        code, error, took = running.end()
    assert code in (-2, 130)
    assert error.count("Traceback") == 1
    assert took < program_within_s()
    assert are_gone(pids, 0.1)


@many_workers
@pytest.mark.parametrize("num_workers", [1, 4, 8])
def test_c114_leaving_takes_under_a_second(num_workers: int) -> None:
    """Persistent workers, after a break at the first batch."""
    made = stoker.DataLoader(
        _images(),
        batch_size=64,
        num_workers=num_workers,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for _ in made:
        break
    started = time.monotonic()
    del made
    assert time.monotonic() - started < 1.0
    assert not multiprocessing.active_children()


def _images() -> object:
    from tests.datasets import Plain

    return Plain(6_000, (1, 28, 28))


@many_workers
def test_c116_breaking_out_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """Ten samples, batch 2, twelve workers."""
    for _ in stoker.DataLoader(range(1, 11), 2, num_workers=12, multiprocessing_context="fork"):
        break
    seen = capfd.readouterr()
    assert (seen.out, seen.err) == ("", "")


def test_c117_a_worker_that_is_told_to_end_is_no_failure(tmp_path: Path) -> None:
    """Though it has to be killed in the middle of a long collate."""
    source = """
    def collate(samples):
        if int(samples[0][0]):
            say("collating")
            time.sleep(600)
        return samples

    iterator = iter(stoker.DataLoader(Numbers(), num_workers=2, collate_fn=collate))
    next(iterator)
    """
    with program(tmp_path, source) as running:
        running.wait_for("collating")
        code, error, took = running.end()
    assert (code, error) == (0, "")
    assert took < program_within_s()
