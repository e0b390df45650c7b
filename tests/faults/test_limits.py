"""Under tight limits of the system: a clear error, or it works; never a hang or a leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.scripts import run

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))

class Images(Numbers):
    shape = (100, 100)
    def __getitem__(self, index):
        return super().__getitem__(index), index

loader = stoker.DataLoader(Images({length}), batch_size=4, num_workers={workers})
"""


def limited(limit: int, length: int = 4000, workers: int = 2) -> str:
    return LIMITED.format(limit=limit, length=length, workers=workers)


def test_keeping_a_field_of_every_batch_needs_no_descriptors(tmp_path: Path) -> None:
    """Hundreds of batches with forty descriptors; torch keeps one or more a batch."""
    source = (
        limited(40, 1200)
        + """
fields = [
    lambda batch: batch[1],
    lambda batch: batch[0].mean(),
    lambda batch: batch[0][0, 0, :3],
    lambda batch: batch[0][:, 0, 0].numpy(),
]
for field in fields:
    kept = []
    for batch in loader:
        kept.append(field(batch))
        del batch
    say(f"kept {len(kept)} {len(os.listdir('/proc/self/fd'))}")
"""
    )
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert len(lines) == 4
    for line in lines:
        word, kept, descriptors = line.split()
        assert (word, int(kept)) == ("kept", 300)
        assert int(descriptors) < 25


def test_keeping_every_batch_needs_no_descriptors(tmp_path: Path) -> None:
    source = (
        limited(40, 800)
        + """
kept = list(loader)
say(f"kept {len(kept)} {len(os.listdir('/proc/self/fd'))}")
"""
    )
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert lines[0].startswith("kept 200 ")
    assert int(lines[0].split()[2]) < 20


@pytest.mark.parametrize("limit", [10, 14])
def test_too_few_descriptors_are_a_clear_error(tmp_path: Path, limit: int) -> None:
    """Wherever the limit is met: starting workers, making slots, receiving them."""
    source = (
        limited(limit, 40, 3)
        + """
import errno
from stoker.errors import TransportError
try:
    for _ in range(2):
        if len(list(loader)) != 10:
            say("wrong")
    say("works")
except TransportError as error:
    say("transport " + str(error).splitlines()[-1])
except OSError as error:
    say("too many" if error.errno == errno.EMFILE else repr(error))
resource.setrlimit(resource.RLIMIT_NOFILE, (limit := resource.getrlimit(7)[1], limit))
import multiprocessing
say(f"left {len(multiprocessing.active_children())}")
"""
    )
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert lines[0] in ("works", "too many") or "ulimit" in lines[0]
    assert lines[1] == "left 0"


def test_a_descriptor_that_cannot_be_received_is_a_clear_error(tmp_path: Path) -> None:
    """The workers have started; then the program opens files up to its limit."""
    source = """
    import resource
    from stoker.errors import TransportError

    class Late(Numbers):
        # Small batches first, which need no slot.
        def __getitem__(self, index):
            return torch.full((3,) if index < 4 else (100, 100), float(index))

    iterator = iter(stoker.DataLoader(Late(20), num_workers=2, prefetch_factor=1))
    next(iterator)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    files = []
    try:
        while True:
            files.append(open("/dev/null"))
    except OSError:
        pass
    try:
        list(iterator)
    except TransportError as error:
        text = str(error)
    for file in files:
        file.close()
    say(text.replace("\\n", " | "))
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert "could not be attached" in lines[0]
    assert "ulimit -n" in lines[0]


def test_no_memory_for_a_slot_is_a_clear_error(tmp_path: Path) -> None:
    """In a worker whose address space is used up; the next, smaller batch is made."""
    source = """
    import resource
    from stoker.errors import TransportError

    class Huge(Numbers):
        def __getitem__(self, index):
            return index

    def collate(samples):
        if samples[0] != 1:
            return torch.full((3,), float(samples[0]))
        batch = torch.zeros(40_000_000, dtype=torch.uint8)
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, resource.RLIM_INFINITY))
        return batch

    iterator = iter(stoker.DataLoader(Huge(3), num_workers=1, collate_fn=collate))
    say(f"first {next(iterator).tolist()}")
    try:
        next(iterator)
    except TransportError as error:
        say(str(error).replace("\\n", " | "))
    say(f"third {next(iterator).tolist()}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert "no shared memory for a batch of 40,0" in lines[1]
    assert "likely cause" in lines[1]
    assert lines[2].startswith("third [2.0")


@pytest.mark.slow
def test_shared_memory_of_the_system_is_not_needed(tmp_path: Path) -> None:
    """With a bound on the size of files: memory without a name does not count as a file."""
    source = """
    import shutil
    free = shutil.disk_usage("/dev/shm").free
    kept = list(stoker.DataLoader(Numbers(64), num_workers=2, collate_fn=
        lambda samples: samples[0].new_zeros(1_000_000)))
    say(f"used {free - shutil.disk_usage('/dev/shm').free}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert int(lines[0].split()[1]) < 64_000_000
