"""Public cases of group G: descriptors, segments and batches in flight."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import torch

from tests.contract.datasets import HeldBack
from tests.contract.methods import Tabled, loader, many_workers
from tests.datasets import Plain
from tests.faults.scripts import run

FORK = multiprocessing.get_context("fork")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_c062_batches_in_flight_are_bounded_over_epochs() -> None:
    """Fewer batches than workers hold, epoch after epoch: nothing piles up."""
    made = loader(Plain(6, (300, 300)), "fork", batch_size=2, persistent_workers=True)
    places = set()
    for _ in range(12):
        for batch in made:
            places.add(batch.data_ptr())
            del batch
    assert len(places) <= 2 * 3
    del made


@many_workers
def test_c062_batches_in_flight_are_limited_by_bytes() -> None:
    """As reported: 3 batches an epoch for 16 workers, each batch large."""
    batch_bytes = 4 * 300 * 300 * 4
    made = loader(
        Plain(12, (300, 300)),
        "fork",
        16,
        batch_size=4,
        persistent_workers=True,
        memory_limit=2 * batch_bytes + batch_bytes // 2,
    )
    for _ in range(4):
        for number, batch in enumerate(made):
            assert [float(sample[0, 0]) for sample in batch] == list(
                range(4 * number, 4 * number + 4)
            )
            told = made.statistics()
            assert told.in_flight <= 2
            del batch
    told = made.statistics()
    assert 0 < told.peak_slot_bytes <= told.memory_limit
    assert told.peak_in_flight <= 2
    assert "3 batches an epoch for 16 workers: 13 have nothing to do" in told.remarks
    del made


@many_workers
def test_c062_an_idle_consumer_finds_no_more_than_the_window() -> None:
    """Four workers, two batches each."""
    dataset = HeldBack(200, -1, FORK)
    iterator = iter(loader(dataset, "fork", 4, batch_size=1, prefetch_factor=2))
    count = 0
    while dataset.made.acquire(timeout=0.3):
        count += 1
    assert count == 8
    del iterator


def test_c066_an_index_of_each_batch_may_be_kept(tmp_path: Path) -> None:
    """As reported: a long epoch, four workers, a small field of each batch; 64 descriptors."""
    source = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    class Items(Numbers):
        def __getitem__(self, index):
            return {"d1": torch.zeros(20, 40), "index": index}

    kept = []
    for batch in stoker.DataLoader(Items(64_00), batch_size=64, num_workers=4):
        kept.append((batch["index"], batch["d1"][0, 0].numpy()))
    say(f"kept {len(kept)}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, lines, error) == (0, ["kept 100"], "")


def test_c067_files_in_samples_are_not_counted_twice(tmp_path: Path) -> None:
    """Handles that samples keep open stay in the workers; this process opens none."""
    path = tmp_path / "sample"
    path.write_bytes(b"x" * 64)

    def sample(index: int) -> Any:
        files = [path.open("rb") for _ in range(8)]
        read = [torch.frombuffer(bytearray(file.read()), dtype=torch.uint8) for file in files]
        for file in files:
            file.close()
        return read

    before = None
    for batch in loader(Tabled(64, sample), "fork", 1, batch_size=16, prefetch_factor=8):
        before = before or descriptors()
        assert descriptors() <= before
        del batch


def test_c069_memory_is_bounded_by_batches_in_flight() -> None:
    """Looping with ``continue`` over large objects, batch 1: slots serve again and again."""
    places = set()
    for batch in loader(Tabled(400, _Graph), "fork", batch_size=None):
        places.add(batch.x.data_ptr())
        continue
    assert len(places) <= 2 * (64 + 64 + 4)


class _Graph:
    def __init__(self, index: int) -> None:
        self.x = torch.full((2_000, 10), float(index))


def test_c069_descriptors_do_not_grow_with_batches() -> None:
    """The same over an epoch, counted in descriptors."""
    counts = []
    for batch in loader(Tabled(200, _Graph), "fork", batch_size=None):
        counts.append(descriptors())
        del batch
    assert max(counts) <= counts[0] + 1
