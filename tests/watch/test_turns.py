"""Which loader has its turn, when epochs are cut, and when it is enough; and what is bounded."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import stoker
from stoker.tuning.answer import Site
from stoker.tuning.probing import Setting
from stoker.watch import marks, measuring, turns
from stoker.watch.conductor import Stop
from stoker.watch.keys import MOST_A_LINE, Keys
from stoker.watch.marks import MarkReader, MarkWriter
from stoker.watch.timeline import Timeline
from stoker.watch.turns import MOST_CUTS, Turns
from tests.datasets import Plain
from tests.watch.watching import Watch, scripted, watched


def site(*, done: bool = False, in_epoch: bool = False) -> Any:
    touched_s = 99.9 if in_epoch and not done else 0.0
    return SimpleNamespace(done=done, in_epoch=in_epoch, touched_s=touched_s, total=0, cut_at=None)


class Case:
    """Sites, loaders that were only made, and a clock."""

    def __init__(self, *sites: Any, unseen: int = 0) -> None:
        self.sites, self.unseen, self.now = list(sites), unseen, 100.0
        self.turns = Turns(lambda: self.sites, lambda: self.unseen, lambda: self.now)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a batch takes the end of an epoch."""
    monkeypatch.setattr(turns, "takes_an_end", lambda: True)


def test_all_answers_are_enough() -> None:
    case = Case(site(done=True, in_epoch=True))
    assert case.turns.enough(case.sites[0]) == "every loader has an answer"


@pytest.mark.usefixtures("loops")
def test_an_epoch_is_cut_for_a_loader_that_waits_and_not_for_ever() -> None:
    train, val = site(done=True, in_epoch=True), site()
    case = Case(train, val)
    for _ in range(MOST_CUTS):
        assert not case.turns.enough(train)
        assert case.turns.cut(train)
    assert not case.turns.cut(train)
    assert case.turns.enough(train) == "every loader that comes up has an answer"
    val.total += 5  # it has come forward after all
    assert not case.turns.enough(train)
    assert case.turns.cut(train)


@pytest.mark.usefixtures("loops")
def test_a_loader_that_is_never_iterated_is_not_waited_for() -> None:
    train = site(done=True, in_epoch=True)
    case = Case(train, unseen=1)
    assert case.turns.cut(train)
    case.now += 2 * turns.MOST_CUTS_S
    assert not case.turns.cut(train)
    assert case.turns.enough(train) == "every loader has an answer"


@pytest.mark.usefixtures("loops")
def test_a_loader_that_comes_within_the_epochs_of_another_is_waited_for() -> None:
    train, val = site(in_epoch=True), site(in_epoch=True)
    case = Case(train, val)
    case.turns.comes(train)
    case.turns.comes(val)
    train.done = True
    assert not case.turns.cut(train)
    assert not case.turns.enough(train)


def test_one_loader_of_a_step_is_measured_after_the_other() -> None:
    one, other = site(in_epoch=True), site(in_epoch=True)
    case = Case(one, other)
    case.turns.comes(one)
    case.turns.comes(other)
    assert case.turns.measured is one
    one.done = True
    case.turns.comes(other)
    assert case.turns.measured is other


def counted(loader: Any) -> None:
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)


def handled(loader: Any) -> None:
    batches = iter(loader)
    while True:
        try:
            next(batches)
        except StopIteration:
            return


def looped(loader: Any) -> None:
    for _ in enumerate(loader):
        pass


@pytest.mark.parametrize(("use", "is_cut"), [(counted, False), (handled, True), (looped, True)])
def test_only_code_that_takes_an_end_is_given_an_early_one(
    tmp_path: Path, use: Any, is_cut: bool
) -> None:
    with scripted(("own", 0, 1)), watched(tmp_path, never_enough=False) as watch:
        DataLoader(Plain(3))  # is never iterated
        loader = DataLoader(Plain(50))
        turns_of = watch.conductor.turns
        turns_of.enough = lambda site: ""  # type: ignore[method-assign]
        use(loader)
        assert (watch.site.total < 50) is is_cut


@pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
@pytest.mark.parametrize("engine", ["torch", "stoker"])
def test_what_is_made_to_try_a_setting_is_no_loader_that_waits_for_its_turn(
    tmp_path: Path, kind: Any, engine: Any
) -> None:
    steps = [("own", 0, 4), ("search", Setting(1, engine), 4)]
    with scripted(*steps), watched(tmp_path, never_enough=False) as watch:
        loader = kind(Plain(100), num_workers=0)
        with pytest.raises(Stop):
            looped(loader)
        assert 8 <= watch.site.total < 100
        assert not watch.conductor._unseen


def test_the_program_ends_as_by_an_exit(tmp_path: Path) -> None:
    came: list[Any] = []
    with scripted(("own", 0, 2)), watched(tmp_path, never_enough=False):
        with pytest.raises(SystemExit) as caught:
            came.extend(DataLoader(Plain(50)))
        assert isinstance(caught.value, Stop)
        assert caught.value.code == 0
    assert (tmp_path / "stopped").exists()
    assert list(tmp_path.glob("sites-*.json"))


@pytest.mark.parametrize("workers", [0, 2])
def test_short_epochs_are_added_up_to_a_window(tmp_path: Path, workers: int) -> None:
    steps = [("own", workers, 20), ("search", 1, 20), ("confirm", workers, 20)]
    with scripted(*steps), watched(tmp_path) as watch:
        loader = DataLoader(Plain(6), batch_size=2, num_workers=workers)
        for _ in range(40):
            assert sum(1 for _ in loader) == 3
        assert watch.site.done
        seen = watch.site.record(whole=False).seen
        assert [each.window.whole for each in seen] == [workers > 0, False, workers > 0]
        assert all(each.window.batches >= 20 for each in seen)


def test_workers_that_are_tried_are_kept_from_epoch_to_epoch(tmp_path: Path) -> None:
    """As they can be in the program, which is told so; an epoch that starts them is left out."""
    with scripted(("own", 0, 6), ("search", 2, 20)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(6), batch_size=2)
        pids = set()
        for _ in range(12):
            for _ in loader:
                source = watch.site._supply.source
                pids.update(source.pids if source else [])
        assert watch.site.done
        assert len(pids) == 2


def test_workers_of_a_loader_for_each_epoch_are_measured_with_their_start(tmp_path: Path) -> None:
    with scripted(("own", 0, 6), ("search", 2, 20)), watched(tmp_path) as watch:
        data = Plain(6)
        for _ in range(20):
            assert sum(1 for _ in DataLoader(data, batch_size=2)) == 3
        assert watch.site.done
        assert wholes(watch) == [(0, False), (2, True)]


def wholes(watch: Watch) -> list[tuple[int, bool]]:
    seen = watch.site.record(whole=False).seen
    return [(each.setting.workers, each.window.whole) for each in seen]


def test_once_one_number_is_measured_over_whole_epochs_all_are(tmp_path: Path) -> None:
    """Of 11 batches one worker has a steady stretch, and two have none."""
    steps = [("own", 0, 8), ("search", 1, 4), ("search", 2, 4), ("confirm", 1, 4), ("search", 0, 4)]
    with scripted(*steps), watched(tmp_path) as watch:
        data = Plain(22)
        for _ in range(60):
            assert sum(1 for _ in DataLoader(data, batch_size=2)) == 11
        assert watch.site.done
        assert wholes(watch) == [(0, False), (1, False), (2, True), (1, True), (0, False)]


def test_given_numbers_are_measured_as_the_largest_of_them_has_to_be(tmp_path: Path) -> None:
    steps = [("own", 0, 8), ("confirm", 1, 4), ("confirm", 2, 4)]
    with scripted(*steps), watched(tmp_path, counts=(1, 2)) as watch:
        data = Plain(22)
        for _ in range(40):
            assert sum(1 for _ in DataLoader(data, batch_size=2)) == 11
        assert watch.site.done
        assert wholes(watch) == [(0, False), (1, True), (2, True)]


def test_epochs_too_short_in_time_are_added_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(("own", 1, 60)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(80), batch_size=2, num_workers=1)
        for _ in range(4):
            assert sum(1 for _ in loader) == 40
        assert watch.site.done


def test_what_is_kept_of_a_long_run_is_bounded(tmp_path: Path) -> None:
    with scripted(("own", 1, 10**9)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(600), num_workers=1, persistent_workers=True)
        for _ in range(6):
            for _ in loader:
                pass
        record = watch.site.record(whole=True)
        assert len(record.spans) <= 800
        assert len(watch.site._measuring._waits) <= measuring._MOST_WAITS
        assert len(record.starts_s) <= 200
        del loader


def test_the_timeline_of_many_visits_is_bounded() -> None:
    timeline = Timeline(0.0, keep_all=False)
    for workers in range(200):
        source: Any = SimpleNamespace(setting=Setting(workers), workers=workers, served=1)
        for _ in range(1000):
            timeline.consumer("wait", 0.0, 1.0, source)
    assert len(timeline.spans) == 20_000


def test_a_data_set_of_another_length_every_time_is_a_bounded_number_of_kinds() -> None:
    keys, line = Keys(), Site("train.py", 3, "main", "loader = DataLoader(data)")
    found = {keys.key(line, DataLoader(Plain(length))) for length in range(1, 100)}
    assert len(found) == MOST_A_LINE + 1


def test_a_data_set_that_grows_is_one_kind() -> None:
    keys, line, data = Keys(), Site("train.py", 3, "main", ""), Plain(1)
    found = set()
    for length in range(1, 50):
        data.length = length
        found.add(keys.key(line, DataLoader(data)))
    assert len(found) == 1


def test_the_file_of_a_worker_is_bounded_and_so_is_what_is_read_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST_BYTES", 100 * marks._RECORD.size)
    monkeypatch.setattr(marks, "_READ_BYTES", 10 * marks._RECORD.size)
    writer, reader = MarkWriter(str(tmp_path)), MarkReader(str(tmp_path), os.getpid())
    for number in range(1000):
        writer.made(number * 0.01, number * 0.01 + 0.009, 8)
    writer.close()
    found = list(reader.new())
    assert len(found) == 10
    assert found[-1].first > 900
    reader.forget()
    assert not list(tmp_path.iterdir())


def test_marks_and_lines_are_removed_with_their_workers(tmp_path: Path) -> None:
    with scripted(("own", 0, 2), ("search", 2, 4), ("search", 1, 4)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(60), batch_size=2)
        assert sum(1 for _ in loader) == 30
        assert watch.site.done
    left = {each.name.split("-")[0] for each in tmp_path.iterdir()}
    assert not left & {"marks", "lines"}, left
    assert torch.is_tensor(next(iter(loader)))
