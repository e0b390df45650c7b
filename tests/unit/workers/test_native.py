"""Threads that a forked copy has not: which of them are named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stoker.workers import native


def test_threads_are_named_that_are_nobody_s_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task without a name has ended meanwhile."""
    own = threading.main_thread().native_id
    assert own is not None
    names = ["train", "train", "nativelib-1", "nativelib-0", "pt_autograd_0", "cuda-EvtHandlr"]
    (tmp_path / "comm").write_text("train\n")
    (tmp_path / "task" / "9").mkdir(parents=True)
    for number, name in [(own, "of Python"), *enumerate(names, 1_000_000_000)]:
        (tmp_path / "task" / str(number)).mkdir(parents=True)
        (tmp_path / "task" / str(number) / "comm").write_text(name + "\n")
    monkeypatch.setattr(native, "_SELF", tmp_path)
    assert native.native_threads() == ["nativelib-0", "nativelib-1"]


def test_none_is_known_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_SELF", tmp_path / "none")
    assert native.native_threads() == []
