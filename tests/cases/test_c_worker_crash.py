"""Public cases of group C that concern shared segments and deaths."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from stoker.errors import WorkerDied
from tests.contract.methods import both_segments, loader, segments_here, use_segments
from tests.datasets import Plain


@both_segments
@pytest.mark.parametrize("persistent", [False, True])
def test_c027_an_epoch_leaves_no_segments(
    segments: str, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None has a name, or is mapped, after its last use."""
    use_segments(monkeypatch, segments)
    before = segments_here()
    made = loader(Plain(80, (100, 100)), "fork", batch_size=2, persistent_workers=persistent)
    for _ in range(3):
        for batch in made:
            del batch
        if not persistent:
            assert segments_here() == before
    del made
    assert segments_here() == before


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_c027_a_killed_worker_leaves_no_segments(
    max_restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it held: memory without a name goes with its last user."""
    use_segments(monkeypatch, "memfd")
    before = segments_here()
    made = loader(Plain(200, (100, 100)), "fork", batch_size=2, max_restarts=max_restarts)
    iterator = iter(made)
    for _ in range(5):
        next(iterator)
    for worker in list(iterator._workers):
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(5)
    with nullcontext() if max_restarts else pytest.raises(WorkerDied):
        collections.deque(iterator, maxlen=0)
    del iterator, made
    assert segments_here() == before


class _Exits(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 37:
            os._exit(1)
        return super().__getitem__(index)


def test_c021_c022_a_death_tells_how_and_where() -> None:
    """The error names exit code and the indices of the batch."""
    with pytest.raises(WorkerDied, match="exit code 1") as caught:
        list(loader(_Exits(100), "fork", batch_size=4))
    assert caught.value.indices == [36, 37, 38, 39]


class _SaysWhy(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 37:
            for line in range(1000):
                print("line", line, file=sys.stderr)
            print("licence server not reached", file=sys.stderr)
            os._exit(1)
        return super().__getitem__(index)


def test_c022_a_death_tells_what_the_worker_wrote_last(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkerDied, match="the last it wrote:") as caught:
        list(loader(_SaysWhy(100), "fork", batch_size=4, max_restarts=0))
    assert str(caught.value).endswith("\n    licence server not reached")
    assert caught.value.last_words.splitlines()[-2:] == ["line 999", "licence server not reached"]
    assert len(caught.value.last_words) <= 2048
    assert "line 0\n" in capfd.readouterr().err


SMALL = """
import shutil, warnings, torch, stoker

class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((3, 512, 512), float(index))

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's, of more workers than CPUs
    print(shutil.disk_usage("/dev/shm").total >> 20, "MiB of /dev/shm")
    made = stoker.DataLoader(Pictures(), 16, num_workers=4, prefetch_factor=2)
    for batch in made:
        assert batch.shape == (16, 3, 512, 512)
        print(batch[0].min().item(), batch[-1].max().item())
"""


def _with_small_shared_memory() -> list[str]:
    """Words before a command that give it 64 MB of /dev/shm; skips where that is not to be had."""
    words = ["unshare", "--mount", "sh", "-c"]
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    try:
        subprocess.run([*words, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mounts of its own for this user")
    return [*words, f'{mount} && exec "$@"', "sh"]


def test_c017_batches_larger_than_shared_memory_arrive(tmp_path: Path) -> None:
    """Four workers with two batches of 50 MB each, in a container with 64 MB of /dev/shm."""
    script = tmp_path / "script.py"
    script.write_text(SMALL)
    words = [*_with_small_shared_memory(), sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "64 MiB of /dev/shm",
        *(f"{first}.0 {first + 15}.0" for first in range(0, 64, 16)),
    ]


class _Mapped(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of a file that is mapped, and shrinks before the fourth batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = np.memmap(path, np.float32, "r", shape=(64, 1 << 14))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 12:
            os.truncate(self.path, 0)
        return torch.from_numpy(np.array(self.rows[index]))


def test_c019_a_file_that_shrank_is_not_put_down_to_shared_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    np.zeros((64, 1 << 14), np.float32).tofile(path)
    with pytest.raises(WorkerDied, match="SIGBUS") as caught:
        list(loader(_Mapped(path), "fork", batch_size=4))
    told = str(caught.value)
    assert "a file that shrank, or went away, while it was mapped" in told
    assert "__getitem__" in caught.value.stack
    assert caught.value.sample is not None
    assert "shared memory is full" not in told
