"""A loader that begins with a kept answer: workers from the first batch on, same batches."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.host import identity
from stoker.tuning import recall
from stoker.tuning.answers import Answers, Entry
from stoker.tuning.fingerprint import fingerprint
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import loader, reasons
from tests.datasets import Drawing, Plain, Stream

TOLD = "`stoker tune` found that best for this data set on this machine on 2026-12-01"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    return tmp_path


def keep(made: Any, workers: int, machine: str | None = None, rate_per_s: float = 1e5) -> None:
    """An answer for this loader's data set."""
    here = identity.machine_digest() if machine is None else machine
    entry = Entry(fingerprint(made), here, workers, rate_per_s, 0.0, 0.5, "2026-12-01", "0.1.0")
    assert Answers.of_user().keep(entry)


def number_after(made: Any, batches: int = 1) -> int:
    iterator = iter(made)
    for _ in range(batches):
        next(iterator)
    return int(made.num_workers)


def test_workers_are_started_at_the_first_batch_and_make_the_same_batches() -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5}

    def new() -> Any:
        return loader(Drawing(120), **options)

    plain = stoker.DataLoader(Drawing(120), num_workers=0, **options)
    keep(new(), 2)
    made, numbers = new(), []
    epochs = []
    for _ in range(2):
        got = []
        for batch in made:
            got.append(copied(batch))
            numbers.append(int(made.num_workers))
        epochs.append(got)
    assert numbers[0] == 2
    assert reasons(made)[0] == f"2 workers to begin with: {TOLD}"
    assert made.statistics().decisions[0].batch == 1
    assert_same(epochs, [list(plain) for _ in range(2)])


def test_one_that_says_none_stays_in_the_main_process() -> None:
    keep(loader(Plain(40)), 0)
    assert number_after(loader(Plain(40)), 20) == 0


def test_another_data_set_begins_as_ever() -> None:
    keep(loader(Plain(40), batch_size=2), 2)
    for other in (loader(Plain(41), batch_size=2), loader(Plain(40), batch_size=3)):
        assert number_after(other) == 0
    assert number_after(loader(Plain(40), batch_size=2)) == 2


def test_an_answer_of_another_machine_is_none() -> None:
    keep(loader(Plain(40)), 2, machine="elsewhere")
    assert number_after(loader(Plain(40))) == 0


def test_this_machine_with_other_limits_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(loader(Plain(40)), 2)
    monkeypatch.setattr(identity, "machine_digest", lambda: "after the limits were changed")
    assert number_after(loader(Plain(40))) == 0


@pytest.mark.parametrize("off", ["", "0"])
def test_turned_off_nothing_is_looked_up(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(loader(Plain(40)), 2)
    monkeypatch.setenv("STOKER_CACHE", off)
    assert number_after(loader(Plain(40))) == 0


def test_fresh_interpreters_are_not_started_for_a_short_epoch() -> None:
    def new() -> Any:
        return stoker.DataLoader(Plain(40), multiprocessing_context="spawn")

    keep(new(), 2)
    made = new()
    assert len(list(made)) == 40
    assert made.num_workers == 0


def test_numbers_that_are_given_and_iterable_data_sets_are_obeyed() -> None:
    for made in (stoker.DataLoader(Plain(12), num_workers=0), loader(Stream(12))):
        keep(made, 2)
        assert number_after(made) == 0


def test_it_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(loader(Plain(12)), 1)
    looked: list[Any] = []
    monkeypatch.setattr(recall, "recall", lambda made: looked.append(made))
    made = loader(Plain(12))
    for _ in range(3):
        assert len(list(made)) == 12
    assert looked == [made]


def test_a_cache_that_is_broken_is_no_error(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    (cache / "answers.json").mkdir()
    assert number_after(loader(Plain(12))) == 0
    assert not caplog.records


def test_a_data_set_without_an_answer_is_not_even_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody who has never tuned pays for it."""
    monkeypatch.setattr("stoker.tuning.fingerprint.fingerprint", lambda made: pytest.fail("looked"))
    assert number_after(loader(Plain(12))) == 0
