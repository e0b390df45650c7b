import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from stoker.host.limits import limit_facts
from tests.unit.host.planting import planted


@pytest.mark.skipif(os.name != "posix", reason="no limit of descriptors")
def test_the_soft_limit_is_the_one_that_counts() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        assert limit_facts().descriptors.value == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(os.name != "posix", reason="no limit of descriptors")
def test_no_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY,) * 2)
    facts = limit_facts()
    assert facts.descriptors.value is None
    assert facts.descriptors_free is None
    assert "unlimited" in facts.descriptors.source


def test_a_system_without_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    facts = limit_facts(tmp_path)
    assert facts.descriptors.value is None
    assert facts.descriptors_used.value is None
    assert facts.shm_free_bytes.value is None


def test_descriptors_in_use(tmp_path: Path) -> None:
    planted(tmp_path, {f"proc/self/fd/{number}": "" for number in range(5)})
    assert limit_facts(tmp_path).descriptors_used.value == 4  # the listing opens one


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are not listed")
def test_one_more_is_one_more() -> None:
    before = limit_facts().descriptors_used.value
    with open(os.devnull):
        assert limit_facts().descriptors_used.value == (before or 0) + 1


def test_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    assert (limit_facts(tmp_path).shm_free_bytes.value or 0) > 0


def test_start_methods_and_no_method_is_settled_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: None)
    facts = limit_facts()
    assert facts.start_methods.value == tuple(multiprocessing.get_all_start_methods())
    assert facts.start_method.value == facts.start_methods.value[0]


def test_a_method_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert limit_facts().start_method.value == "spawn"
