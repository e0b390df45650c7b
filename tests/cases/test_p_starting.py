"""Public cases of group P: what ``stoker tune`` tells of starting workers, epoch for epoch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.cases.tuning import tune
from tests.measured import measures

pytestmark = measures

EPOCHS = """
def comes_up_slowly(worker):
    time.sleep(0.5)
if __name__ == "__main__":
    loader = DataLoader({arguments})
    for epoch in range(1000):
        for batch in loader:
            time.sleep(0.005)
"""
FRESH = 'Sleeping(64, 0.02), batch_size=4, num_workers=2, multiprocessing_context="forkserver"'
SLOW = "Sleeping(64, 0.02), batch_size=4, num_workers=2, worker_init_fn=comes_up_slowly"


def started_anew(answer: dict[str, Any]) -> list[str]:
    return [remark for remark in answer["remarks"] if "started anew every epoch" in remark]


def test_c142_the_start_of_every_epoch_is_told_with_advice(tmp_path: Path) -> None:
    """As on Windows: what is outside the guard runs again in each worker; here that takes 0.3 s.

    They come from a server that has imported torch: how long that takes is the machine's matter.
    """
    body = f"""
time.sleep(0.3)  # outside the guard
if __name__ == "__main__":
    import multiprocessing
    multiprocessing.set_forkserver_preload(["torch"])
{EPOCHS.format(arguments=FRESH)}
"""
    told = tune(tmp_path, body, "--workers", "2", seconds=12)
    answer = told.only
    assert answer["epochs"] > 1
    assert answer["start_s"] > 0.3
    [remark] = started_anew(answer)
    assert remark.startswith("2 workers are started anew every epoch (each a new interpreter that ")
    assert "imports the program again: forkserver" in remark
    assert re.search(r"persistent_workers=True would save [\d.]+ m?s of [\d.]+ m?s", remark)
    assert f"Also: {remark}" in told.out
    assert answer["advice"]["arguments"] == [["persistent_workers", "True"]]
    assert "persistent_workers=True" in answer["change"]["after"]


def test_c144_what_a_start_costs_is_told_with_the_argument_that_saves_it(tmp_path: Path) -> None:
    """Half a second a start, and a third of one for the batches of an epoch."""
    told = tune(tmp_path, EPOCHS.format(arguments=SLOW), "--workers", "2", seconds=8)
    answer = told.only
    assert told.code == 0, told.error
    assert answer["start_s"] > 0.5
    [remark] = started_anew(answer)
    assert remark.startswith("2 workers are started anew every epoch: persistent_workers=True ")
    assert re.search(r"would save [\d.]+ m?s of [\d.]+ m?s an epoch", remark)
    assert answer["limit"]["kind"] != "start"  # with the argument it is none any more
    assert answer["advice"]["arguments"] == [["persistent_workers", "True"]]


def test_c144_workers_that_stay_need_no_advice(tmp_path: Path) -> None:
    arguments = f"{SLOW}, persistent_workers=True"
    told = tune(tmp_path, EPOCHS.format(arguments=arguments), "--workers", "2", seconds=8)
    answer = told.only
    assert told.code == 0, told.error
    assert not started_anew(answer)
    assert answer["limit"]["kind"] != "start"
    assert not answer["advice"]["arguments"]


def test_c146_a_loader_made_anew_in_every_epoch_is_named(tmp_path: Path) -> None:
    """At the same line, with what it costs; nothing could keep the workers of such loaders."""
    body = """
def comes_up_slowly(worker):
    time.sleep(0.3)
def loader():
    return DataLoader(Sleeping(64, 0.01), 4, num_workers=2, worker_init_fn=comes_up_slowly)
if __name__ == "__main__":
    for epoch in range(1000):
        for batch in loader():
            time.sleep(0.002)
"""
    told = tune(tmp_path, body, "--workers", "2", seconds=10)
    answer = told.only
    assert told.code == 0, told.error
    assert answer["made"] > 3
    [remark] = [each for each in answer["remarks"] if "a new loader is made" in each]
    assert remark.startswith("a new loader is made at this line every epoch (")
    counted = re.search(r"\((\d+) loaders, (\d+) epochs\)", remark)
    assert counted is not None
    assert int(counted[1]) == answer["made"]
    assert abs(int(counted[1]) - int(counted[2])) <= 1
    assert re.search(r": [\d.]+ m?s of [\d.]+ m?s an epoch went into starting 2 workers", remark)
    assert "make it once before the loop" in remark
    assert remark in told.out
    assert ["persistent_workers", "True"] not in answer["advice"]["arguments"]
