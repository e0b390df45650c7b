"""Public cases of group A: what ``stoker tune`` answers; the number, what limits it, and why."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cases.tuning import on_one_cpu, rate_of, tune
from tests.measured import measures

pytestmark = measures

OF_32 = "loader = DataLoader(Sleeping(5000, 0.005), batch_size=32)\n"


def test_c001_the_number_is_found_and_why_is_told(tmp_path: Path) -> None:
    """As reported: batches of 32 samples of 5 ms each, 0 workers, and nothing else to do."""
    told = tune(tmp_path, OF_32, name="loader")
    answer = told.only
    assert told.code == 0, told.error
    advice = answer["advice"]
    assert advice["num_workers"] >= 4
    assert advice["gain"] > 2
    assert answer["waiting"] > 0.9
    assert rate_of(answer, 0)["own"]
    assert rate_of(answer, advice["num_workers"])["batches_per_s"] == advice["batches_per_s"]
    assert f"{advice['num_workers']} workers: " in advice["reason"]
    assert advice["reason"] in told.out
    assert f"num_workers={advice['num_workers']}" in answer["change"]["after"]
    assert answer["limit"]["sentence"]
    assert answer["limit"]["sentence"] in told.out
    assert answer["lines"][0]["code"] == "time.sleep(self.sample_s)"


def test_c001_a_program_is_measured_as_it_is(tmp_path: Path) -> None:
    """The smallest number that removes the wait beside its own step, not the largest."""
    told = tune(
        tmp_path,
        """
if __name__ == "__main__":
    for batch in DataLoader(Sleeping(4000, 0.02), batch_size=4):
        time.sleep(0.05)  # the training step
""",
    )
    answer = told.only
    assert told.code == 0, told.error
    assert 2 <= answer["advice"]["num_workers"] <= 4  # 80 ms a batch
    assert answer["limit"]["kind"] == "consumer"
    assert 0.03 < answer["step_s"] < 0.08
    assert answer["site"]["code"].startswith("for batch in DataLoader")
    assert answer["consumer"] == "the program's own step"


@pytest.mark.parametrize(("step_ms", "least", "most"), [("0", 7, 99), ("50", 2, 6)])
def test_c002_two_consumers_two_numbers(
    tmp_path: Path, step_ms: str, least: int, most: int
) -> None:
    """The same data set, 160 ms a batch; one consumer takes nothing, the other 50 ms a batch."""
    answer = tune(tmp_path, OF_32, "--step-ms", step_ms, name="loader", seconds=12).only
    assert least <= answer["advice"]["num_workers"] <= most
    consumer = step_ms != "0"
    assert (answer["limit"]["kind"] == "consumer") is consumer
    if consumer:
        assert answer["consumer"] == "a step of 50 ms"
        assert "own step of " in answer["limit"]["sentence"]


@pytest.mark.parametrize("own", [0, 1])
def test_c002_it_says_when_more_workers_change_nothing(own: int, tmp_path: Path) -> None:
    """A step of 100 ms beside batches that are there at once."""
    body = f"""
if __name__ == "__main__":
    for batch in DataLoader(TensorDataset(torch.zeros(4000, 3)), batch_size=4, num_workers={own}):
        time.sleep(0.1)
"""
    told = tune(tmp_path, body)
    answer = told.only
    assert told.code == 0, told.error
    assert answer["limit"]["kind"] == "consumer"
    assert "own step of " in answer["limit"]["sentence"]
    assert answer["most_gain"] < 1.2
    assert answer["advice"]["num_workers"] <= own
    if not own:
        assert answer["change"] is None
        assert "Nothing to gain: keep num_workers=0." in told.out


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_c004_the_cpus_are_those_the_process_may_use(tmp_path: Path) -> None:
    """As under taskset; 80 workers were suggested there."""
    body = """
class Computing(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return torch.zeros(4)
loader = DataLoader(Computing(), batch_size=4)
"""
    with on_one_cpu():
        told = tune(tmp_path, body, name="loader", seconds=10)
    usable = told.record["host"]["cpus"]["usable"]
    assert usable["value"] == 1
    assert usable["source"].startswith("affinity")
    assert told.out.splitlines()[1].startswith("1 CPU usable (affinity")
    answer = told.only
    assert answer["advice"]["num_workers"] <= 3
    assert max(each["num_workers"] for each in answer["rates"]) <= 8


IN_MEMORY = """
data = TensorDataset(torch.rand(20_000, 20))
loader = DataLoader(data, batch_size=256, num_workers={own})
"""


def test_c006_the_answer_may_be_none_and_is_explained(tmp_path: Path) -> None:
    """All data in memory, beside a step: whoever has workers is told to drop them."""
    told = tune(tmp_path, IN_MEMORY.format(own=4), "--step-ms", "40", name="loader", seconds=16)
    answer = told.only
    assert told.code == 0, told.error
    assert answer["advice"]["num_workers"] == 0
    assert answer["advice"]["reason"].startswith("0 workers: ")
    assert answer["limit"]["kind"] in ("consumer", "main process")
    assert re.search(r"\d", answer["limit"]["sentence"])
    assert "num_workers=0" in answer["change"]["text"]
    assert answer["change"]["after"].endswith("num_workers=0)")


def test_c006_a_batch_sooner_made_than_handed_on(tmp_path: Path) -> None:
    """Nothing else to do: a worker's batches would take longer to arrive than to make."""
    body = IN_MEMORY.format(own=0).replace("256", "4")
    told = tune(tmp_path, body, name="loader", seconds=10)
    answer = told.only
    assert told.code == 0, told.error
    assert answer["advice"]["num_workers"] == 0
    assert answer["change"] is None


CAPPED = """
import fcntl, struct

class Capped(Dataset):
    '''Reads take 40 ms each, and all processes together get 100 a second.'''
    def __init__(self):
        self.path = os.path.abspath("storage")
        with open(self.path, "wb") as disk:
            disk.write(struct.pack("d", 0.0))
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        with open(self.path, "r+b") as disk:
            fcntl.flock(disk, fcntl.LOCK_EX)
            turn = max(time.monotonic(), struct.unpack("d", disk.read(8))[0])
            disk.seek(0)
            disk.write(struct.pack("d", turn + 1 / 100))
            disk.flush()
        time.sleep(max(0.0, turn - time.monotonic()) + 0.04)
        return torch.zeros(4)
loader = DataLoader(Capped(), batch_size=4)
"""


def test_storage_whose_reads_per_second_are_capped(tmp_path: Path) -> None:
    """The fewest workers that get all there is, and that it is the storage."""
    pytest.importorskip("fcntl")
    told = tune(tmp_path, CAPPED, name="loader", seconds=20)
    answer = told.only
    assert told.code == 0, told.error
    advice, limit = answer["advice"], answer["limit"]
    assert 3 <= advice["num_workers"] <= 8  # 160 ms a batch, and 25 batches/s for all
    assert 18 < advice["batches_per_s"] < 28
    assert max(each["num_workers"] for each in answer["rates"]) > advice["num_workers"]
    assert limit["kind"] == "storage"
    count = advice["num_workers"]
    assert f"from {count} workers on the rate stays at " in limit["sentence"]
    assert re.search(r"stays at [\d.]+ batches/s \([\d.]+ samples/s\)", limit["sentence"])
    assert "and CPUs are free" in limit["sentence"]
    assert limit["sentence"] in told.out


TWO_LOADERS = """
class Sample(Sleeping):
    def __getitem__(self, index):
        end = {clock}() + 0.01
        while {clock}() < end:
            {meanwhile}
        return torch.zeros(4)
if __name__ == "__main__":
    train = DataLoader(Sample(4000, 0), batch_size=4, num_workers=2)
    val = DataLoader(Sample(4000, 0), batch_size=4, num_workers=3)
    for batches in zip(train, val):
        pass
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
@pytest.mark.parametrize("starved", [True, False])
def test_c007_all_live_loaders_are_counted_with_a_measured_reason(
    starved: bool, tmp_path: Path
) -> None:
    """Two loaders, each above the limit of one CPU: what matters is whether they want one."""
    clock, meanwhile = (
        ("time.thread_time", "pass") if starved else ("time.time", "time.sleep(0.01)")
    )
    with on_one_cpu():
        told = tune(tmp_path, TWO_LOADERS.format(clock=clock, meanwhile=meanwhile), seconds=8)
    answers = told.record["loaders"]
    assert len(answers) == 2
    remarks = [each for one in answers for each in one["remarks"] if "without one" in each]
    assert bool(remarks) == starved
    for remark in remarks:
        assert remark.startswith("5 workers of 2 loaders share 1 CPU: they stood ")
        assert f"Also: {remark}" in told.out


def test_c009_start_up_and_steady_rate_are_told_apart_and_epochs_are_weighed(
    tmp_path: Path,
) -> None:
    """Workers that come up one after the other, 0.3 s each, for epochs of 12 batches of 20 ms.

    The more of them, the later the last comes; the loader is made anew in every epoch.
    """
    pytest.importorskip("fcntl")
    body = """
import fcntl
def one_after_the_other(worker):
    with open("lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        time.sleep(0.3)
def loader():
    return DataLoader(Sleeping(12, 0.02), num_workers=4, worker_init_fn=one_after_the_other)
if __name__ == "__main__":
    for epoch in range(1000):
        for batch in loader():
            pass
"""
    told = tune(tmp_path, body, seconds=12)
    answer = told.only
    assert told.code == 0, told.error
    own = rate_of(answer, 4)
    assert own["method"] == "epochs"
    assert own["first_batch_s"] > 0.3
    assert own["epoch_batches_per_s"] < 12 / 1.2
    assert "* an epoch is too short for a steady rate" in told.out
    assert 1 <= answer["advice"]["num_workers"] < 4
    assert answer["advice"]["gain"] > 1.1
    chosen = rate_of(answer, answer["advice"]["num_workers"])
    assert answer["advice"]["batches_per_s"] == chosen["epoch_batches_per_s"]
    assert answer["start_s"] > 0.3
