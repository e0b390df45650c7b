"""Every test is followed by a look at what it left behind; see `tests.leftovers`."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.leftovers import Snapshot, adopt_orphans, sign_segments
from tests.starting.keeper import end_all

_failed = pytest.StashKey[bool]()

settings.register_profile("stoker", max_examples=50, deadline=None, derandomize=True, database=None)
settings.load_profile("stoker")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=["waiting", "computing", "alone"],
        help="only tests that mostly wait; or only others that may run beside each other; "
        "or only those that neighbours would disturb",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaks_allowed(reason): what this test leaves behind is not looked for"
    )
    adopt_orphans()
    sign_segments()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in what a shell has put in the background; programs of tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    end_all()


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


@pytest.fixture(autouse=True, scope="session")
def _heap_is_there() -> None:
    """Multiprocessing keeps the memory of its values for good, once there was one."""
    multiprocessing.RawValue("i")


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


# What starts processes, or whole programs, or waits for them to end.
_SLOW_FOLDERS = {
    *("blocked", "cases", "cli", "contract", "examples", "faults", "programs", "reports", "watch"),
}
_SLOW_FILES = {"test_order.py", "test_simulate_worlds.py"}

# Programs that are started, and mostly wait: several at a time take a fraction of the time.
_WAITING = {"cli", "examples", "programs", "watch"}
# Neighbours would change what is measured, or how long an ending takes.
_ALONE = {"blocked", "cases", "faults", "reports"}
# But these of them compare contents, and no time limit is near.
_BESIDE = {
    *("test_replaying.py", "test_replaying_auto.py", "test_repeating.py", "test_exceptions.py"),
    *("test_broken_and_dying.py", "test_unsent_batches.py", "test_logs_and_warnings.py"),
    *("test_forking.py", "test_e_files.py"),
}
_ROOT = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in _SLOW_FOLDERS or item.path.name in _SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    part = config.getoption("part")
    if part is not None:
        _keep(part, config, items)


def _keep(part: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of one part."""
    kept: dict[str, list[pytest.Item]] = {"waiting": [], "computing": [], "alone": []}
    for item in items:
        room = item.path.relative_to(_ROOT).parts[0]
        waits = room in _WAITING
        alone = room in _ALONE and item.path.name not in _BESIDE
        kept["waiting" if waits else "alone" if alone else "computing"].append(item)
    items[:] = kept.pop(part)
    config.hook.pytest_deselected(items=[item for left in kept.values() for item in left])
