"""The file of kept answers: what goes in comes out, and nothing that is wrong with it raises."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.host.identity import machine_digest
from stoker.tuning import answers
from stoker.tuning.answer import Advice, Answer, Rate
from stoker.tuning.answers import Answers, Entry, remember
from stoker.tuning.recommend import CountSummary

ENTRY = Entry("print", "here", 4, 812.0, 0.005, 0.02, "2026-12-01", "0.1.0", "fork")


@pytest.fixture
def kept(tmp_path: Path) -> Answers:
    return Answers(tmp_path / "some" / "folder")


def path_of(kept: Answers) -> Path:
    assert kept.path is not None
    return kept.path


def planted(kept: Answers, text: str | bytes) -> Answers:
    path_of(kept).parent.mkdir(parents=True, exist_ok=True)
    path_of(kept).write_bytes(text if isinstance(text, bytes) else text.encode())
    return kept


def whole(*entries: Any, schema: Any = 1) -> str:
    return json.dumps({"format": "stoker answers", "schema": schema, "answers": list(entries)})


def test_what_is_kept_is_found(kept: Answers) -> None:
    assert kept.empty
    assert kept.keep(ENTRY)
    found = Answers(path_of(kept).parent).find("print", "here")
    assert found is not None
    assert (found.workers, found.batches_per_s, found.when) == (4, 812.0, "2026-12-01")
    assert (found.step_s, found.waiting, found.start_method) == (0.005, 0.02, "fork")


def test_another_machine_or_data_set_has_none(kept: Answers) -> None:
    kept.keep(ENTRY)
    assert kept.find("print", "elsewhere") is None
    assert kept.find("another", "here") is None


def test_a_later_answer_replaces_the_one_before_and_no_other(kept: Answers) -> None:
    kept.keep(ENTRY)
    kept.keep(replace(ENTRY, machine="elsewhere", num_workers=9))
    kept.keep(replace(ENTRY, num_workers=7))
    found = [kept.find("print", machine) for machine in ("here", "elsewhere")]
    assert [known.workers for known in found if known] == [7, 9]
    assert len(json.loads(path_of(kept).read_text())["answers"]) == 2


def test_the_file_is_as_documented(kept: Answers) -> None:
    kept.keep(ENTRY)
    told = json.loads(path_of(kept).read_text())
    assert told == {"format": "stoker answers", "schema": 1, "answers": [asdict(ENTRY)]}
    documented = (Path(__file__).parents[3] / "docs" / "answers.md").read_text()
    assert all(f"`{name}`" in documented for name in (*told, *told["answers"][0]))
    assert path_of(kept).name in documented


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff\xfe",
        b"[" * 100_000,
        b'{"format": "stoker answers", "schema": 1, "answers": [',
        whole(asdict(ENTRY)).replace("stoker answers", "something else"),
        whole(asdict(ENTRY), schema=0),
        whole(asdict(ENTRY), schema="1"),
        whole(asdict(ENTRY), schema=None),
        '{"format": "stoker answers", "schema": 1, "answers": {}}',
        '"stoker answers"',
        "null",
        whole(None, 3, [], {}),
    ],
    ids=range(12),
)
def test_a_file_that_is_corrupt_is_empty_and_written_anew(kept: Answers, text: Any) -> None:
    planted(kept, text)
    assert kept.find("print", "here") is None
    assert kept.keep(ENTRY)
    assert kept.find("print", "here") is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_workers": -1},
        {"num_workers": 1e9},
        {"num_workers": 10**9},
        {"num_workers": True},
        {"num_workers": "4"},
        {"batches_per_s": None},
        {"batches_per_s": 0},
        {"batches_per_s": -1.0},
        {"batches_per_s": float("nan")},
        {"batches_per_s": 10**400},
        {"step_s": float("inf")},
        {"waiting": "much"},
        {"when": "yesterday"},
        {"when": "\x1b[31m"},
        {"fingerprint": 3},
        {"machine": None},
        {"stoker": "x" * 1000},
    ],
)
def test_an_entry_that_cannot_be_true_is_passed_by(kept: Answers, wrong: dict[str, Any]) -> None:
    other = asdict(replace(ENTRY, fingerprint="good"))
    planted(kept, whole(other, {**asdict(ENTRY), **wrong}, {"fingerprint": "print"}))
    assert kept.find("print", "here") is None
    assert kept.find("good", "here") is not None


def test_fields_of_later_versions_are_passed_by(kept: Answers) -> None:
    planted(kept, whole({**asdict(ENTRY), "prefetch_factor": 4}))
    assert kept.find("print", "here") is not None


def test_a_newer_file_is_left_alone(kept: Answers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    text = whole({"another": "format"}, schema=2)
    planted(kept, text)
    assert kept.find("print", "here") is None
    assert not kept.keep(ENTRY)
    assert path_of(kept).read_text() == text
    assert "a newer version of Stoker" in caplog.text


def test_a_huge_file_is_not_read(kept: Answers) -> None:
    planted(kept, whole(asdict(ENTRY), *["x" * 1000] * 3000))
    assert kept.find("print", "here") is None
    assert kept.keep(ENTRY)
    assert path_of(kept).stat().st_size < 1000


def test_the_file_stays_small_and_the_newest_stay(kept: Answers) -> None:
    long = "x" * 90
    entries = [asdict(replace(ENTRY, fingerprint=f"{n:06}", stoker=long)) for n in range(1500)]
    planted(kept, whole(*entries))
    kept.keep(ENTRY)
    told = json.loads(path_of(kept).read_text())["answers"]
    assert len(told) == 1000
    assert (told[0]["fingerprint"], told[-1]["fingerprint"]) == ("000501", "print")
    entries = [replace(ENTRY, fingerprint=f"{n:06}", stoker="\x00" * 100) for n in range(1000)]
    kept._write(entries)
    assert path_of(kept).stat().st_size <= 1_000_000
    assert kept.find("000999", "here") is not None


def test_a_file_that_was_changed_by_others_is_read_again(kept: Answers) -> None:
    kept.keep(ENTRY)
    assert kept.find("print", "here") is not None
    planted(kept, whole())
    assert kept.find("print", "here") is None
    path_of(kept).unlink()
    assert kept.empty


def test_what_was_read_is_not_read_again(kept: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.keep(ENTRY)
    assert kept.find("print", "here") is not None
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read again"))
    assert kept.find("print", "here") is not None


def test_a_folder_that_cannot_be_made_keeps_nothing_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    (tmp_path / "file").write_text("")
    kept = Answers(tmp_path / "file" / "below")
    for _ in range(3):
        assert not kept.keep(ENTRY)
        assert kept.find("print", "here") is None
    assert [record.levelname for record in caplog.records if "not kept" in record.message] == [
        "INFO"
    ]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="may write anywhere")
def test_a_folder_that_may_not_be_written_keeps_nothing(kept: Answers) -> None:
    kept.keep(ENTRY)
    path_of(kept).parent.chmod(0o500)
    try:
        assert not kept.keep(replace(ENTRY, num_workers=9))
    finally:
        path_of(kept).parent.chmod(0o700)


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    kept: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(ENTRY)
    before = set(path_of(kept).parent.iterdir())

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answers.os, "replace", full)
    assert not kept.keep(replace(ENTRY, num_workers=9))
    found = kept.find("print", "here")
    assert found is not None
    assert found.workers == 4
    assert set(path_of(kept).parent.iterdir()) == before


def test_locks_that_the_file_system_lacks_are_done_without(
    kept: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    def lacks(*args: Any, **options: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(filelock.FileLock, "acquire", lacks)
    assert kept.keep(ENTRY)
    assert kept.find("print", "here") is not None


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from stoker.tuning.answers import Answers, Entry
assert "torch" not in sys.modules
who, kept = sys.argv[2], Answers(Path(sys.argv[1]))
for n in range(30):
    entry = Entry(f"{who} {n}", "here", n, 1.0, None, None, "2026-12-01", "0.1.0")
    assert kept.keep(entry)
    assert kept.find(f"{who} {n}", "here").workers == n
"""


def test_commands_at_the_same_time_lose_nothing(kept: Answers) -> None:
    folder = path_of(kept).parent
    environ = {**os.environ, "PYTHONPATH": str(Path(stoker.__file__).parents[1])}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), who], env=environ)
        for who in "ab"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(json.loads(path_of(kept).read_text())["answers"]) == 60
    assert {file.name for file in folder.iterdir()} <= {"answers.json", "answers.json.lock"}


@pytest.mark.parametrize("off", ["", "0", " "])
def test_it_can_be_turned_off(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", off)
    kept = Answers.of_user()
    assert kept.path is None
    assert not kept.keep(ENTRY)
    assert kept.empty
    assert kept.find("print", "here") is None


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    assert Answers.of_user().path == tmp_path / "answers.json"
    monkeypatch.delenv("STOKER_CACHE")
    usual = Answers.of_user().path
    assert usual is not None
    assert "stoker" in usual.parts


def answered(**changes: Any) -> Answer:
    summary = CountSummary(4, 800.0, 780.0, 0.1, None, 0.01, 3, "steady", True)
    answer = Answer(
        name="train.py:31",
        loader=None,
        consumer="the script's own step",
        step_s=0.0051234567891,
        rates=(Rate(replace(summary, num_workers=0), 0.9), Rate(summary, 0.021)),
        advice=Advice(4, 812.3456789, "fewest", True),
    )
    return replace(answer, **changes)


def test_what_tune_has_found_is_remembered_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    remember("print", answered(), start_method="spawn")
    found = Answers.of_user().find("print", machine_digest())
    assert found is not None
    assert (found.workers, found.batches_per_s, found.step_s) == (4, 812.346, 0.00512346)
    assert (found.waiting, found.start_method) == (0.021, "spawn")
    remember("print", answered(), machine="theirs")
    assert Answers.of_user().find("print", "theirs") is not None


@pytest.mark.parametrize(
    ("fingerprint", "changes"),
    [
        ("", {}),
        ("print", {"advice": None}),
        ("print", {"advice": Advice(4, 0.0, "", True)}),
        ("print", {"advice": Advice(4, float("nan"), "", True)}),
    ],
)
def test_what_was_not_found_is_not_remembered(
    fingerprint: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "none"))
    remember(fingerprint, answered(**changes))
    assert not (tmp_path / "none").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(JSON | st.dictionaries(st.sampled_from([*asdict(ENTRY)]), JSON), st.binary(max_size=40))
def test_any_file_is_read_without_an_error(told: Any, raw: bytes) -> None:
    for text in (raw, json.dumps(told).encode(), whole(told, asdict(ENTRY)).encode()):
        found = answers._answers_in(text)
        entries = [answers._entry_in(each) for each in found or ()]
    assert entries[-1] == ENTRY
