import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from stoker.errors import RecordError
from stoker.host.facts import Fact
from stoker.report.record import report_json, report_record
from stoker.report.recorded import report_from, report_of
from stoker.tuning.answer import Advice, Answer, Change, Limit, Report, Work
from stoker.tuning.of_sweep import report_of_sweep
from stoker.tuning.result import Failure, TuneResult
from tests.unit.report.invented import CPUS, LOADER, invent
from tests.unit.report.random_reports import REPORTS
from tests.unit.tuning.invented import observe

MEMORY = Fact(8 << 30, "memory available on the machine")


def recorded(result: TuneResult) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(report_json(report_of_sweep(result, MEMORY)))
    return record


def test_record() -> None:
    record = recorded(invent())
    assert record["schema"] == 1
    assert record["target"] == record["command"] == "mnist.py:loader"
    assert record["kind"] == "target"
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
    assert [trial["own"] for trial in record["trials"]] == [False, False, True]
    assert record["host"]["cpus"]["usable"] == {"value": 2, "source": "affinity; no cgroup quota"}
    assert record["host"]["memory_bytes"]["value"] == 8 << 30
    assert record["errors"] == []


def test_the_one_loader_of_a_target_is_among_the_loaders() -> None:
    record = recorded(invent())
    [loader] = record["loaders"]
    assert loader["rates"] == record["trials"]
    assert loader["loader"] == record["loader"]
    assert loader["advice"]["reason"] == record["reason"]
    assert loader["advice"]["gain"] == pytest.approx(812 / 800)
    assert loader["now_per_s"] == 800.0
    assert loader["change"]["text"] == "num_workers=2  (now 4)"
    assert loader["consumer"] == "nothing: batches are dropped"
    assert loader["work"] is None


def test_a_program_has_its_loaders_and_nothing_singular() -> None:
    loaders = tuple(Answer(name, LOADER, "the script's own step") for name in ("a", "b"))
    report = Report(
        "train.py --fast", "program", loaders, (), CPUS, MEMORY, invent().software, 3.0,
        ended="by itself", exit_code=3,
    )  # fmt: skip
    record = report_record(report)
    assert [loader["name"] for loader in record["loaders"]] == ["a", "b"]
    singular = ("target", "recommended", "reason", "loader")
    assert [record[key] for key in singular] == [None] * 4
    assert record["trials"] == []
    assert (record["command"], record["ended"]) == ("train.py --fast", "by itself")
    assert record["exit_code"] == 3


def test_what_is_right_as_it_is_needs_no_change() -> None:
    right = invent([observe(4, 10.0, repeat) for repeat in range(3)])
    [answer] = report_of_sweep(right, MEMORY).answers
    assert answer.change is None
    assert answer.nothing_to_gain


def test_a_failed_run_is_a_record_too() -> None:
    failure = Failure("raised", 0, "ValueError: 7", "reading batches", batches=12, detail="Trace")
    record = recorded(invent([observe(0, 10.0, complete=False)], (failure,)))
    assert record["recommended"] is None
    assert record["reason"] is None
    assert record["trials"][0]["complete"] is False
    assert record["trials"][0]["spread"] is None
    assert record["errors"][0]["message"] == "ValueError: 7"
    assert record["errors"][0]["num_workers"] == 0
    assert record["errors"][0]["batches"] == 12
    assert record["loaders"][0]["advice"] is None
    assert "to the end" in record["loaders"][0]["limit"]["sentence"]


def test_what_worked_is_recommended_as_partial() -> None:
    record = recorded(invent(failures=(Failure("died", 8, "It died."),)))
    assert record["recommended"]["partial"] is True


@given(REPORTS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_report_survives_the_way_there_and_back(report: Report) -> None:
    assert report_of(json.loads(report_json(report))) == report
    assert report_from(report_json(report)) == report


def test_a_bound_without_end_is_null() -> None:
    endless = Answer("a", None, "", waits=((0.1, 4), (float("inf"), 2)))
    record = report_record(_of(endless))
    assert record["loaders"][0]["waits"] == [[0.1, 4], [None, 2]]


def test_a_number_that_is_none_does_not_lose_the_rest() -> None:
    """A rate over no time at all: what is told else is still written."""
    odd = Answer("a", None, "", most_gain=float("inf"), bound_per_s=float("nan"))
    loader = json.loads(report_json(_of(odd)))["loaders"][0]
    assert loader["most_gain"] is None
    assert loader["bound_per_s"] is None


def _of(answer: Answer) -> Report:
    return Report("x:loader", "target", (answer,), (), CPUS, MEMORY, invent().software, 1.0)


def test_keys_of_a_later_version_are_passed_over_and_missing_ones_have_defaults() -> None:
    answer = Answer(
        "a", LOADER, "nothing", limit=Limit("cpu", "All CPUs are busy."),
        advice=Advice(2, 10.0, "Because.", True, (("persistent_workers", "True"),)),
        change=Change("num_workers=2"), work=Work(1.0, 0.5, 0.1, 0.0, 0.2, None, 0, 0.1, 0.02),
    )  # fmt: skip
    record = report_record(_of(answer))
    record["weather"] = record["loaders"][0]["weather"] = {"rain": True}
    del record["loaders"][0]["waits"], record["ended"]
    assert report_of(record) == _of(answer)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no schema number"),
        ("7", "no schema number"),
        ('{"schema": "1"}', "no schema number"),
        ('{"schema": true}', "no schema number"),
        ('{"schema": 2}', "has schema 2, and this version of Stoker knows 1"),
        ('{"schema": 1}', "it has no `host`"),
        ('{"schema": 1, "host": 5, "kind": "target", "command": "", "loaders": []}', "`host`"),
    ],
)
def test_other_files_are_refused(text: str, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        report_from(text)
    assert said in caught.value.what
    assert caught.value.change


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["kind"], "other", "`kind` is to be one of target, program, but is 'other'"),
        (["elapsed_s"], "long", "`elapsed_s` is to be a number, but is 'long'"),
        (["elapsed_s"], 10**400, "`elapsed_s` is to be a number"),
        (["loaders"], {}, "`loaders` is to be a list"),
        (["loaders", 0], 3, "`loaders[0]` is to be a group of keys"),
        (["loaders", 0, "rates", 1, "num_workers"], 2.5, "is to be a whole number, but is 2.5"),
        (["loaders", 0, "rates", 1, "num_workers"], True, "is to be a whole number"),
        (["loaders", 0, "rates", 1, "own"], 1, "is to be true or false"),
        (["loaders", 0, "rates", 1, "waiting"], float("inf"), "`loaders[0].rates[1].waiting`"),
        (["loaders", 0, "rates", 1], None, "`loaders[0].rates[1]` is to be a group"),
        (["loaders", 0, "waits"], [[1.0]], "`loaders[0].waits[0]` is to be a list of 2"),
        (["loaders", 0, "limit", "kind"], "moon", "is to be one of consumer, "),
        (["host", "cpus"], {}, "it has no `host.cpus.usable`"),
        (["host", "cpus", "usable"], 4, "`host.cpus.usable` is to be"),
        (["errors"], [3], "`errors[0]` is to be a group of keys, but is 3"),
    ],
)
def test_what_was_edited_is_refused_by_its_place(path: list[Any], value: Any, said: str) -> None:
    record = copy.deepcopy(recorded(invent()))
    place: Any = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(RecordError) as caught:
        report_of(record)
    assert said in caught.value.what
