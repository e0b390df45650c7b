"""Every test is followed by a look at what it left behind; see `tests.leftovers`."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.leftovers import Snapshot, adopt_orphans, sign_segments

_failed = pytest.StashKey[bool]()

settings.register_profile("stoker", max_examples=50, deadline=None, derandomize=True, database=None)
settings.load_profile("stoker")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=["side-by-side", "alone"],
        help="only tests that may run beside others, most of which wait; or only the others",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaks_allowed(reason): what this test leaves behind is not looked for"
    )
    adopt_orphans()
    sign_segments()


def pytest_collection_finish() -> None:
    # Modules stay anyway: without them a collection takes a fraction of the time.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report


@pytest.fixture(autouse=True, scope="session")
def _answers_are_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept in the developer's cache is neither read nor written, by no process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _accelerator_is_awake() -> None:
    """Opens an accelerator's descriptors before the first test is looked at."""
    if torch.accelerator.is_available():
        torch.zeros(1, device=torch.accelerator.current_accelerator())


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder for programs; torch's sockets in it may have names of 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a process, thread, descriptor, segment or mapping.

    A test that has failed already is not looked at: its traceback keeps its objects alive.
    """
    before = Snapshot.take()
    yield
    if request.node.get_closest_marker("leaks_allowed"):
        return
    if request.node.stash.get(_failed, False):
        return
    left = before.left_for_good()
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


_SLOW_FOLDERS = {"cases", "cli", "contract", "examples", "faults", "reports", "watch"}

# Programs that are started, and mostly wait: several at a time take a fraction of the time.
# The public cases of tuning are not among them: neighbours would change what is measured.
_SIDE_BY_SIDE = {"cli", "examples", "watch"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What starts whole programs, or waits for them to end, is not for all day."""
    for item in items:
        if item.path.parent.name in _SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
    part = config.getoption("part")
    if part is None:
        return
    kept: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        beside = item.path.parent.name in _SIDE_BY_SIDE
        kept[beside == (part == "side-by-side")].append(item)
    items[:] = kept[True]
    config.hook.pytest_deselected(items=kept[False])
