"""The rooms of the house: which may import which, and what the pure ones stay away from."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker

SOURCE = Path(stoker.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
# From the top down: a room imports from those below it only.
ROOMS = [
    "cli",
    "report",
    "doctor",
    "watch",
    "loader",
    "tuning",
    "feed",
    "workers",
    "records",
    "transport",
    "order",
    "per_process",
    "host",
    "arguments",
    "options",
    "sizes",
    "errors",
]
MAY_KNOW_THE_PACKAGE = {"__init__.py", "__main__.py", "cli"}
PURE = [
    "feed/dispatch.py",
    "feed/excerpt.py",
    "feed/growing.py",
    "feed/losses.py",
    "feed/meter.py",
    "feed/patience.py",
    "feed/plight.py",
    "feed/probation.py",
    "feed/restarts.py",
    "feed/room.py",
    "feed/window.py",
    "order/broken.py",
    "order/keys.py",
    "report/**/*.py",
    "sizes.py",
    "transport/board_bytes.py",
    "transport/fields.py",
    "transport/unbuilt.py",
    "tuning/advising.py",
    "tuning/answer.py",
    "tuning/asks.py",
    "tuning/assumed.py",
    "tuning/belief.py",
    "tuning/calls.py",
    "tuning/change.py",
    "tuning/compared.py",
    "tuning/contest.py",
    "tuning/controller.py",
    "tuning/costs.py",
    "tuning/dearest.py",
    "tuning/decision.py",
    "tuning/each_step.py",
    "tuning/evidence.py",
    "tuning/excerpt.py",
    "tuning/explained.py",
    "tuning/findings.py",
    "tuning/foretold.py",
    "tuning/grounds.py",
    "tuning/growth.py",
    "tuning/guesses.py",
    "tuning/known.py",
    "tuning/limits.py",
    "tuning/loader_call.py",
    "tuning/meter.py",
    "tuning/model.py",
    "tuning/noise.py",
    "tuning/of_sweep.py",
    "tuning/off_cpu.py",
    "tuning/one_line.py",
    "tuning/pattern.py",
    "tuning/probing.py",
    "tuning/rates.py",
    "tuning/reason.py",
    "tuning/recommend.py",
    "tuning/result.py",
    "tuning/rivals.py",
    "tuning/scenario.py",
    "tuning/search.py",
    "tuning/seek.py",
    "tuning/seen.py",
    "tuning/settling.py",
    "tuning/simulate.py",
    "tuning/site_record.py",
    "tuning/situation.py",
    "tuning/snapshot.py",
    "tuning/startup.py",
    "tuning/statistics.py",
    "tuning/status.py",
    "tuning/stretch.py",
    "tuning/table.py",
    "tuning/visits.py",
    "tuning/wording.py",
    "watch/served.py",
    "workers/hearing.py",
    "workers/looks.py",
    "workers/raised.py",
    "workers/telling.py",
]
IMPURE = {"torch", "multiprocessing", "threading", "time", "os"}


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of the modules that are imported, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def breaches(room: str, names: list[str]) -> list[str]:
    """Those of the imported names that a file in `room` must not import."""
    found = []
    for name in names:
        package, _, rest = name.partition(".")
        if package != "stoker":
            continue
        target = rest.split(".")[0]
        if target not in ROOMS:
            allowed = room in MAY_KNOW_THE_PACKAGE or f"{room}.py" in MAY_KNOW_THE_PACKAGE
        elif room in ROOMS:
            allowed = ROOMS.index(target) >= ROOMS.index(room)
        else:
            allowed = True
        if not allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_rooms_import_downwards_only(file: Path) -> None:
    assert breaches(room_of(file), list(imports(parsed(file)))) == []


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room_of(file) for file in FILES} - {"__init__", "__main__"} <= set(ROOMS)


def test_an_import_upwards_would_be_seen() -> None:
    source = "import stoker\nfrom stoker.feed import feed\nfrom stoker.order.keys import mix\n"
    assert breaches("workers", list(imports(ast.parse(source)))) == ["stoker", "stoker.feed.feed"]
    assert breaches("errors", ["stoker.options.seed"]) == ["stoker.options.seed"]
    assert breaches("cli", ["stoker.__version__", "stoker.tuning.search"]) == []


def test_no_module_imports_itself_through_others() -> None:
    def module(file: Path) -> str:
        return ".".join(("stoker", *file.relative_to(SOURCE).with_suffix("").parts))

    known = {module(file) for file in FILES}
    edges = {
        module(file): {
            target
            for name in imports(parsed(file))
            for target in (name, name.rpartition(".")[0])
            if target in known
        }
        for file in FILES
    }
    while ends := [name for name, targets in edges.items() if not targets]:
        for name in ends:
            del edges[name]
        for targets in edges.values():
            targets.difference_update(ends)
    assert edges == {}


PURE_FILES = sorted({file for pattern in PURE for file in SOURCE.glob(pattern)})


@pytest.mark.parametrize("file", PURE_FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_pure_modules_stay_pure(file: Path) -> None:
    roots = {name.partition(".")[0] for name in imports(parsed(file))}
    assert not roots & IMPURE


@pytest.mark.parametrize("pattern", PURE)
def test_every_pure_module_is_there(pattern: str) -> None:
    assert list(SOURCE.glob(pattern))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_file_is_too_long(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 500


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=SOURCE.parent,
    )
    return set(done.stdout.split())


def test_the_command_line_comes_up_without_torch() -> None:
    assert "torch" not in loaded_by("import stoker.cli")


def test_a_worker_comes_up_without_what_its_data_set_may_not_need() -> None:
    loaded = loaded_by("import stoker.workers.job")
    assert not loaded & {"torch", "numpy", "psutil", "threadpoolctl", "click", "rich", "plotly"}


def test_the_loader_does_not_bring_the_command_line_along() -> None:
    loaded = loaded_by("import stoker; stoker.DataLoader")
    assert "torch" in loaded
    assert not loaded & {"click", "rich", "plotext", "stoker.cli", "stoker.report"}
    assert not loaded & {"platformdirs", "filelock", "stoker.tuning.answers"}
    assert not loaded & {
        "click",
        "jinja2",
        "rich",
        "plotext",
        "plotly",
        "stoker.cli",
        "stoker.report",
    }
    assert not loaded & {"stoker.tuning.sweep", "stoker.tuning.trial", "stoker.tuning.target"}
