"""``stoker tune PROGRAM``: whole programs, watched until there is an answer, and stopped."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tests.measured import measures

pytestmark = measures

HEAD = """
import atexit, os, sys, threading, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Items(Dataset):
    def __init__(self, length=80, seconds=0.0005):
        self.length, self.seconds = length, seconds
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((2,), float(index))
"""


def tuned(
    folder: Path, body: str, *options: str, head: str = HEAD
) -> tuple[int, dict[str, Any], str]:
    """Exit code, the result, and what was written to standard error."""
    (folder / "program.py").write_text(head + body)
    code, _, err = run(folder, "tune", "--json", "result.json", *options, "program.py")
    path = folder / "result.json"
    return code, json.loads(path.read_text()) if path.exists() else {}, err


def test_a_program_is_measured_and_stopped_as_if_it_had_ended(tmp_path: Path) -> None:
    body = """
atexit.register(lambda: open("atexit", "w").close())
loader = DataLoader(Items(), batch_size=8, shuffle=True)
try:
    while True:
        for batch in loader:
            pass
finally:
    open("finally", "w").close()
"""
    code, result, err = tuned(tmp_path, body, "--steps", "300")
    assert code == 0, err
    assert "Traceback" not in err
    (answer,) = result["loaders"]
    assert answer["loader"]["num_workers"] == 0
    assert (tmp_path / "finally").exists()
    assert (tmp_path / "atexit").exists()


@pytest.mark.parametrize(
    "caught",
    ["except BaseException: pass", "except SystemExit: time.sleep(1e6)"],
    ids=["goes-on", "waits"],
)
def test_a_program_that_does_not_let_itself_be_stopped_is_ended(
    tmp_path: Path, caught: str
) -> None:
    body = f"""
loader = DataLoader(Items(8), batch_size=2)
while True:
    try:
        for batch in loader:
            pass
    {caught}
"""
    code, result, err = tuned(tmp_path, body, "--seconds", "6")
    assert code == 0, err
    assert len(result["loaders"]) == 1


def test_loaders_that_take_turns_in_an_epoch_all_have_an_answer(tmp_path: Path) -> None:
    body = """
train = DataLoader(Items(4000), batch_size=4)
val = DataLoader(Items(12, 0.0001), batch_size=4)
never = DataLoader(Items(7))
for epoch in range(10_000):
    for batch in train:
        pass
    for batch in val:
        pass
"""
    code, result, err = tuned(tmp_path, body, "--workers", "0", "--seconds", "60")
    assert code == 0, err
    assert len(result["loaders"]) == 2
    assert all(each["advice"] for each in result["loaders"])
    assert "after" not in result["ended"], result["ended"]


def test_a_program_that_counts_its_batches_is_not_broken_to_reach_another(tmp_path: Path) -> None:
    body = """
train, val = DataLoader(Items(4000), batch_size=4), DataLoader(Items(12))
while True:
    batches = iter(train)
    for number in range(len(train)):
        batch = next(batches)
    for batch in val:
        pass
"""
    code, _result, err = tuned(tmp_path, body, "--seconds", "8")
    assert "Traceback" not in err
    assert code == 0, err


def test_two_loaders_of_one_step_have_an_answer_each(tmp_path: Path) -> None:
    body = """
real, fake = DataLoader(Items(2000), batch_size=4), DataLoader(Items(3000, 0.0002), batch_size=4)
while True:
    for one, other in zip(real, fake):
        pass
"""
    code, result, err = tuned(tmp_path, body, "--workers", "0", "--seconds", "60")
    assert code == 0, err
    assert len(result["loaders"]) == 2
    assert "every loader" in result["ended"]


def test_the_programs_own_failure_is_its_own(tmp_path: Path) -> None:
    body = """
for batch in DataLoader(Items(8)):
    raise LookupError("of the program")
"""
    code, _, err = tuned(tmp_path, body)
    assert code == 1
    assert "LookupError: of the program" in err


def test_a_fork_of_the_program_has_loaders_of_its_own(tmp_path: Path) -> None:
    body = """
loader = DataLoader(Items(), batch_size=8, num_workers=1)
while True:
    for number, batch in enumerate(loader):
        if number == 3:
            child = os.fork()
            if not child:
                came = sum(1 for _ in DataLoader(Items(6, 0)))
                os._exit(0 if came == 6 else 5)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    code, _result, err = tuned(tmp_path, body, "--seconds", "6")
    assert code == 0, err
    assert "Traceback" not in err


DISTRIBUTED = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

def train(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    data = Items(400, 0.003)
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    told = open(f"rank-{rank}", "w")
    steps = 0
    try:
        for epoch in range(100_000):
            sampler.set_epoch(epoch)
            batches = iter(loader)
            for batch in batches:
                model(batch).sum().backward()
                steps += 1
                workers = len(getattr(batches, "_workers", ()))
                told.write(f"{steps} {workers}\\n")
    finally:
        told.close()

"""

TORCHRUN = """
if __name__ == "__main__":
    torch.set_num_threads(1)
    train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
"""

SPAWNED = """
if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
    torch.multiprocessing.spawn(train, (2,), nprocs=2)
"""


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("way", ["torchrun", "spawned"])
def test_ranks_change_and_stop_at_the_same_batch(tmp_path: Path, way: str) -> None:
    main = TORCHRUN if way == "torchrun" else SPAWNED.format(port=free_port())
    (tmp_path / "program.py").write_text(HEAD + DISTRIBUTED + main)
    words = ["program.py"]
    if way == "torchrun":
        words = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        words += ["--master-port", str(free_port()), "program.py"]
    steps = "400" if way == "torchrun" else "60"  # the loaders' workers are spawned as well
    code, _, err = run(tmp_path, "tune", "--json", "result.json", "--steps", steps, *words)
    assert code == 0, err
    assert "Traceback" not in err, err
    one, other = ((tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1))
    assert len(one) == len(other), err
    (answer,) = json.loads((tmp_path / "result.json").read_text())["loaders"]
    assert answer["loader"]["num_workers"] == 0
    assert len({line.split()[1] for line in one}) > 1
    apart = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    assert not apart


@pytest.mark.parametrize("form", ["fixed", "auto"])
def test_stokers_own_loader_is_measured_too(tmp_path: Path, form: str) -> None:
    workers = "1" if form == "fixed" else '"auto"'
    body = f"""
import stoker
loader = stoker.DataLoader(Items(2000), batch_size=4, num_workers={workers})
while True:
    assert sum(1 for _ in loader) == 500
"""
    code, result, err = tuned(tmp_path, body, "--seconds", "15")
    assert code == 0, err
    assert "Traceback" not in err
    assert len(result["loaders"]) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_program_without_a_guard_is_not_started_again_to_be_measured(tmp_path: Path) -> None:
    body = """
import torch.multiprocessing
torch.multiprocessing.set_start_method("spawn")
print("once", file=open("ran", "a"))
loader = DataLoader(Items(seconds=0.002), batch_size=8)
for epoch in range(40):
    for batch in loader:
        pass
"""
    code, result, err = tuned(tmp_path, body)
    assert code == 0, err
    assert (tmp_path / "ran").read_text() == "once\n"
    (answer,) = result["loaders"]
    assert {each["num_workers"] for each in answer["rates"]} == {0}
    assert any('it has no `if __name__ == "__main__":`' in each for each in answer["remarks"])


def test_a_spawned_program_part_is_no_second_leader(tmp_path: Path) -> None:
    body = """
import multiprocessing
def other():
    assert sum(1 for _ in DataLoader(Items(10, 0), batch_size=2)) == 5
if __name__ == "__main__":
    loader = DataLoader(Items(), batch_size=8)
    for epoch in range(100_000):
        for batch in loader:
            pass
        if epoch == 2:
            child = multiprocessing.get_context("fork").Process(target=other)
            child.start()
            child.join()
            assert child.exitcode == 0
"""
    code, _result, err = tuned(tmp_path, body, "--seconds", "10")
    assert code == 0, err
    assert "Traceback" not in err
    assert sys.executable
