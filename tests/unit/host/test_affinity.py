import os
import re
from pathlib import Path

import pytest

from stoker.host import affinity
from stoker.host.affinity import affinity_finding, process_finding, worker_finding
from tests.unit.host.planting import planted

EIGHT = frozenset(range(8))


def proposed(text: str | None) -> set[int]:
    """The CPUs that a finding proposes to give back, as Python reads them."""
    match = re.search(r"sched_setaffinity\(0, (.*?)\)+ (?:gives|at)", text or "")
    assert match
    argument = match[1] + (")" if match[1].startswith("range") else "")
    return set(eval(argument))


def test_fewer_than_at_import_is_told_with_what_gives_them_back() -> None:
    text = process_finding(EIGHT, frozenset({3}))
    assert text is not None
    assert "1 of the 8 CPUs" in text
    assert proposed(text) == EIGHT


def test_scattered_cpus_are_proposed_one_by_one() -> None:
    assert proposed(process_finding(frozenset({0, 2, 9}), frozenset({0}))) == {0, 2, 9}


@pytest.mark.parametrize(
    ("first", "now"),
    [
        (EIGHT, EIGHT),
        (frozenset({0, 1}), EIGHT),
        (frozenset({0, 1}), frozenset({2, 3})),
        (None, frozenset({0})),
        (EIGHT, None),
    ],
)
def test_nothing_is_told_of_what_is_not_known_wrong(
    first: frozenset[int] | None, now: frozenset[int] | None
) -> None:
    assert process_finding(first, now) is None
    assert worker_finding(0, first, now) is None


def test_a_worker_beside_its_process() -> None:
    text = worker_finding(3, EIGHT, frozenset({0}))
    assert text is not None
    assert text.startswith("worker 3 may run on 1 of the 8 CPUs of the main process")
    assert proposed(text) == EIGHT


def test_a_group_that_was_narrowed_is_no_librarys_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity, "_AT_IMPORT", EIGHT)
    monkeypatch.setattr(affinity, "mask_now", lambda: frozenset({4, 5}))
    assert affinity_finding(tmp_path) is not None
    assert affinity_finding(planted(tmp_path, {"sys/fs/cgroup/cpuset.cpus": "4-5"})) is None


def test_where_nothing_tells_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert affinity.mask_now() is None
    assert affinity_finding() is None
