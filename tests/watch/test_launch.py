"""A program that is run: its exit, its signals, what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stoker.errors import ProgramError
from stoker.watch import launch
from stoker.watch.folder import run_folder
from stoker.watch.program import Program
from stoker.watch.settings import Settings
from stoker.watch.signals import Handled

posix = pytest.mark.skipif(os.name != "posix", reason="signals")
HANDLES = """
import os, signal, sys, time
came = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, lambda number, frame: came.append(number))
open("ready", "w").close()
while len(came) < int(sys.argv[1]):
    time.sleep(0.01)
time.sleep(0.3)
print(*came, flush=True)
"""
# Has a child that ignores SIGTERM, and a grandchild whose parent has ended.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
orphan = "import time; time.sleep(600)"
start = f"([sys.executable, '-c', {orphan!r}], start_new_session=True)"
parent = f"import subprocess, sys; subprocess.Popen{start}"
subprocess.run([sys.executable, "-c", parent])
if os.fork() == 0:
    time.sleep(600)
open("ready", "w").close()
time.sleep(600)
"""


Tick = Callable[[launch.Running], object]


class Here:
    """Runs scripts in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, source: str, *arguments: str) -> Program:
        script = self.folder / "script.py"
        script.write_text(source)
        return Program.of([str(script), *arguments])

    def run(
        self, source: str, tick: Callable[[launch.Running], object] | None = None
    ) -> launch.Ended:
        with run_folder() as folder:
            settings = Settings("run", folder)
            with launch.started(self.program(source), settings) as running:
                return running.wait(None if tick is None else lambda: tick(running))

    def is_ready(self) -> bool:
        return (self.folder / "ready").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(tmp_path)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os._exit(7)", 7),
        ("import sys; sys.stderr = None; raise ValueError", 1),
    ],
)
def test_the_exit_code_is_the_programs(here: Here, temporary: Path, source: str, code: int) -> None:
    assert here.run(source) == launch.Ended(code, stopped=False)


@posix
def test_the_signal_that_ends_it_is_known(here: Here) -> None:
    assert here.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9


def test_what_cannot_be_started_is_told(here: Here) -> None:
    file = here.folder / "go"
    file.write_text("\x00\x01")
    file.chmod(0o755)
    refused = pytest.raises(ProgramError, match="could not be started")
    with run_folder() as folder, refused:
        launch.started(Program.of(["./go"]), Settings("run", folder)).__enter__()


COMMAND = """
import sys
from stoker.watch import launch
from stoker.watch.folder import run_folder
from stoker.watch.program import Program
from stoker.watch.settings import Settings
from stoker.watch.signals import Handled
with run_folder() as folder:
    with launch.started(Program.of(sys.argv[1:]), Settings("run", folder)) as running:
        ended = running.wait()
launch.end_like(ended)
"""


def command(here: Here, *words: str, **options: object) -> subprocess.Popen[str]:
    """A command of its own that runs the program, as `stoker run` does."""
    package = str(Path(launch.__file__).parents[2])
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-c", COMMAND, *words],
        env={**os.environ, "PYTHONPATH": package, "TMPDIR": str(here.folder)},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@posix
def test_signals_to_the_command_reach_the_program_once(here: Here) -> None:
    wanted = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
    script = here.program(HANDLES, str(len(wanted))).words
    with command(here, *script) as running:
        wait_until(here.is_ready)
        for number in wanted:
            running.send_signal(number)
            time.sleep(0.05)
        out, _ = running.communicate(timeout=30)
    assert out.split() == [str(int(number)) for number in wanted]
    assert running.returncode == 0


@posix
def test_ctrl_c_in_a_terminal_reaches_the_program_once(here: Here) -> None:
    import pty

    script = here.program(HANDLES, "1").words
    main, terminal = pty.openpty()
    try:
        with command(here, *script, stdin=terminal, preexec_fn=_own_terminal) as running:
            wait_until(here.is_ready)
            os.write(main, b"\x03")
            out, _ = running.communicate(timeout=30)
    finally:
        os.close(main)
        os.close(terminal)
    assert out.split() == [str(int(signal.SIGINT))]


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_the_command_ends_by_the_same_signal(here: Here, number: signal.Signals) -> None:
    source = f"import os, signal; signal.signal({number:d}, signal.SIG_DFL); "
    if number == signal.SIGKILL:
        source = "import os; "
    script = here.program(f"{source}os.kill(os.getpid(), {number:d})").words
    with command(here, *script) as running:
        running.communicate(timeout=30)
    assert running.returncode == -number
    assert not list(here.folder.glob("stoker-run-*"))
    assert not list(here.folder.glob("core*"))


@posix
def test_a_stopped_program_goes_on(here: Here) -> None:
    script = here.program(HANDLES, "1").words
    with command(here, *script, start_new_session=True) as running:
        wait_until(here.is_ready)
        os.killpg(running.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.killpg(running.pid, signal.SIGCONT)
        running.send_signal(signal.SIGUSR1)
        out, _ = running.communicate(timeout=30)
    assert out.split() == [str(int(signal.SIGUSR1))]


@posix
def test_the_program_outlives_a_killed_command(here: Here) -> None:
    script = here.program(HANDLES, "1").words
    with command(here, *script) as running:
        wait_until(here.is_ready)
        (program,) = psutil.Process(running.pid).children()
        running.kill()
        running.wait()
        assert program.is_running()
        program.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=30)
    assert out.split() == [str(int(signal.SIGTERM))]


def test_ticks_come_while_it_runs(here: Here) -> None:
    ticks: list[float] = []
    here.run("import time; time.sleep(1)", lambda running: ticks.append(time.monotonic()))
    assert 2 <= len(ticks) <= 8


@posix
def test_it_waits_beside_other_threads_and_a_timer_of_this_process(here: Here) -> None:
    """A signal to this process goes to any thread that does not block it."""
    rang: list[int] = []
    ticks: list[float] = []
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        here.run("import time; time.sleep(0.6)", lambda running: ticks.append(time.monotonic()))
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
        over.set()
        other.join()
    assert rang == []
    assert len(ticks) >= 2


def test_a_program_that_ends_by_itself_in_time_is_not_killed(here: Here) -> None:
    source = "import time; open('ready', 'w').close(); time.sleep(0.5); raise SystemExit(5)"
    ended = here.run(source, lambda running: here.is_ready() and running.stop(30))
    assert ended == launch.Ended(5, stopped=True)


@posix
def test_a_stubborn_program_is_ended_with_all_its_processes(
    here: Here, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "TERM_S", 0.2)
    before = {each.pid for each in psutil.process_iter()}
    ended = here.run(STUBBORN, lambda running: here.is_ready() and running.stop(0.1))
    assert ended == launch.Ended(-9, stopped=True)
    left = [each for each in psutil.process_iter() if each.pid not in before]
    assert [each for each in left if "sleep(600)" in " ".join(_words(each))] == []


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return words


@posix
def test_what_outlives_a_stopped_program_is_ended_too(here: Here, temporary: Path) -> None:
    source = STUBBORN.rpartition("time.sleep(600)")[0] + "time.sleep(6)"
    ended = here.run(source, lambda running: here.is_ready() and running.stop(30))
    assert ended.returncode == 0


def test_an_error_of_the_callers_ends_the_program(here: Here, temporary: Path) -> None:
    def fail(running: launch.Running) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        here.run("import time; time.sleep(600)", fail)


@posix
def test_where_signals_cannot_be_waited_for_they_are_handled(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "watched", Handled)
    wanted = [signal.SIGUSR1, signal.SIGTERM]
    before = [signal.getsignal(number) for number in wanted]
    sent: list[int] = []

    def send(running: launch.Running) -> None:
        if here.is_ready() and len(sent) < len(wanted):
            sent.append(wanted[len(sent)])
            os.kill(os.getpid(), sent[-1])

    program = here.program(
        HANDLES.replace("print(*came, flush=True)", "open('came', 'w').write(str(came))"), "2"
    )
    with run_folder() as folder, launch.started(program, Settings("run", folder)) as running:
        assert running.wait(lambda: send(running)).returncode == 0
    assert (here.folder / "came").read_text() == str([int(number) for number in wanted])
    assert [signal.getsignal(number) for number in wanted] == before
