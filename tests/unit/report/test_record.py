import json

from stoker.report.record import tune_json, tune_record
from stoker.tuning.result import Failure
from tests.unit.report.invented import invent
from tests.unit.tuning.invented import observe


def test_record() -> None:
    record = json.loads(tune_json(invent()))
    assert record["schema"] == 1
    assert record["target"] == "mnist.py:loader"
    assert record["recommended"] == {
        "num_workers": 2,
        "batches_per_s": 812.0,
        "certain": True,
        "partial": False,
    }
    assert record["reason"].startswith("2 workers: 812 batches/s")
    assert [trial["num_workers"] for trial in record["trials"]] == [0, 2, 4]
    trial = record["trials"][1]
    assert trial["batches_per_s"] == 812.0
    assert trial["samples_per_s"] == 812.0 * 64
    assert trial["first_batch_s"] == 0.0
    assert 0 < trial["spread"] < 0.02
    assert trial["repeats"] == 3
    assert record["host"]["cpus"]["usable"] == {"value": 2, "source": "affinity; no cgroup quota"}
    assert record["errors"] == []


def test_a_failed_run_is_a_record_too() -> None:
    failure = Failure("raised", 0, "ValueError: 7", "reading batches", batches=12, detail="Trace")
    record = tune_record(invent([observe(0, 10.0, complete=False)], (failure,)))
    assert record["recommended"] is None
    assert record["reason"] is None
    assert record["trials"][0]["complete"] is False
    assert record["trials"][0]["spread"] is None
    assert record["errors"][0]["message"] == "ValueError: 7"
    assert record["errors"][0]["num_workers"] == 0
    assert record["errors"][0]["batches"] == 12


def test_what_worked_is_recommended_as_partial() -> None:
    record = tune_record(invent(failures=(Failure("died", 8, "It died."),)))
    assert record["recommended"]["partial"] is True
