"""Programs run in the ways that people run them: workers come up, and batches are the same."""

from __future__ import annotations

from pathlib import Path

from tests.programs.program import DATA, run, write

EVERY_WAY = """
check(Noisy(), num_workers=2, multiprocessing_context="fork")
check(Noisy(), num_workers=1, multiprocessing_context="spawn")
check(Noisy(transform=lambda x: doubled(x)), num_workers=2, worker_method="fresh")
check(Noisy(), num_workers="auto")
print("done")
"""

OF_A_RANK = """
import torch.distributed
from torch.utils.data import DistributedSampler
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
dataset = Noisy(transform=lambda x: doubled(x))
check(dataset, num_workers=2, sampler=DistributedSampler(dataset))
made = epoch(DataLoader(dataset, batch_size=4, num_workers=2, sampler=DistributedSampler(dataset)))
seen = torch.zeros(48).index_fill(0, (made[:, :, 0, 0]).floor().long().flatten(), 1.0)
torch.distributed.all_reduce(seen)
assert int(seen.sum()) == 24  # between them, the ranks have each sample once
print(f"rank {rank} done\\n", end="", flush=True)
torch.distributed.destroy_process_group()
"""

TESTS = """
import pytest
from program import Noisy, check

@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches(method):
    check(Noisy(), num_workers=1, multiprocessing_context=method)
"""


def test_nothing_is_warned_of_in_development_mode(tmp_path: Path) -> None:
    """What is left open is a warning there; here every warning is an error, in workers too."""
    write(tmp_path, EVERY_WAY)
    ended = run(["-X", "dev", "-W", "error", "program.py"], tmp_path)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_the_ranks_of_torchrun_have_workers_each(tmp_path: Path) -> None:
    write(tmp_path, OF_A_RANK)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py"]
    ended = run(words, tmp_path)
    assert sorted(ended.stdout.splitlines()) == ["rank 0 done", "rank 1 done"]


def test_a_debugger_lets_workers_come_up(tmp_path: Path) -> None:
    """It follows new processes: a copy, and one that begins anew."""
    write(tmp_path, EVERY_WAY)
    ended = run(["-m", "debugpy", "--listen", "127.0.0.1:0", "program.py"], tmp_path)
    assert ended.stdout == "done\n"


def test_tests_in_processes_of_xdist_have_workers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DATA)
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-n1", "-W", "error", "-p", "no:cacheprovider", "test_it.py"]
    ended = run(words, tmp_path)
    assert "2 passed" in ended.stdout
