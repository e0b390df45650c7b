"""What is done when a library comes: once, whenever its import began."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.host import arriving

HERE = "stoker_tests_newcomer"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda text: (tmp_path / f"{HERE}.py").write_text(text) and None
    sys.modules.pop(HERE, None)
    arriving._arrived.discard(HERE)
    assert HERE not in arriving._waiting


def test_before_the_import_returns(write: Callable[[str], None]) -> None:
    write("there = True")
    acts: list[object] = []
    arriving.when_imported(HERE, lambda: acts.append(sys.modules[HERE].there))
    assert not acts
    assert not arriving.is_here(HERE)
    exec(f"import {HERE}\nacts.append('returned')", {"acts": acts})
    assert acts == [True, "returned"]
    assert arriving.is_here(HERE)


def test_at_once_where_it_is_there(write: Callable[[str], None]) -> None:
    write("there = True")
    __import__(HERE)
    acts: list[str] = []
    arriving.when_imported(HERE, lambda: acts.append("done"))
    assert acts == ["done"]


def test_once_it_is_whole_where_its_import_had_begun(
    write: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it is ``stoker`` itself that the module imports."""
    acts: list[str] = []
    monkeypatch.setattr(
        arriving,
        "_test_asks",
        lambda: arriving.when_imported(HERE, lambda: acts.append("done")),
        raising=False,
    )
    write("from stoker.host import arriving as it\nit._test_asks()\nit.catch_up()")
    __import__(HERE)
    assert not acts
    assert arriving.is_here(HERE)
    arriving.catch_up()
    arriving.catch_up()
    assert acts == ["done"]


def test_what_never_came_is_still_waited_for(write: Callable[[str], None]) -> None:
    acts: list[str] = []
    arriving.when_imported(HERE, lambda: acts.append("done"))
    arriving.catch_up()
    assert not acts
    write("")
    __import__(HERE)
    assert acts == ["done"]
