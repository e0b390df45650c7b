"""``stoker run`` where the program, or who reads, ends early: nothing stays, and all is told."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time

import pytest

from tests.cli.running import DATA, Ended, Folder, folder

__all__ = ["folder"]


def test_an_interrupted_program_leaves_nothing(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
import time
class Slow(Items):
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)
loader = DataLoader(Slow(100000), batch_size=2, num_workers=2)
for number, batch in enumerate(loader):
    if number == 3:
        open("ready", "w").close()
"""
    )
    with folder.start("-m", "stoker", "run", "--workers", "keep", script) as process:
        deadline = time.monotonic() + 60
        while not (folder.path / "ready").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    told = Ended(process.returncode, out, err.decode())
    assert told.code == -signal.SIGINT
    assert told.err.count("KeyboardInterrupt") == 1
    assert "2 workers as the program says" in told.summary[1]
    assert list(folder.temporary.glob("stoker-*")) == []


def test_ctrl_c_again_and_again_prints_nothing_of_stokers(folder: Folder) -> None:
    """The program ends in the middle of it; the command tells its summary and ends alike."""
    script = folder.write(
        DATA
        + """
import os, signal, time
came = []
signal.signal(signal.SIGINT, lambda number, frame: came.append(1))
list(DataLoader(Items(), batch_size=4))
open("ready", "w").close()
while len(came) < 5:
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""
    )
    with folder.start("-m", "stoker", "run", script) as process:
        deadline = time.monotonic() + 60
        while not (folder.path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        while process.poll() is None:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)
        out, err = process.communicate(timeout=60)
    told = Ended(process.returncode, out, err.decode())
    assert told.code == 0
    assert told.err.splitlines() == told.summary
    assert list(folder.temporary.glob("stoker-*")) == []


def test_a_program_killed_at_once_is_told_of(folder: Folder) -> None:
    source = "list(DataLoader(Items(), batch_size=4))\nimport os\nos.kill(os.getpid(), 9)"
    ended = folder.run(folder.write(DATA + source))
    assert ended.code == -9
    assert "train.py:15" in ended.summary[1]


def test_a_folder_is_removed_though_the_command_was_killed(folder: Folder) -> None:
    script = folder.write(
        DATA + "import time\nlist(DataLoader(Items()))\nopen('ready', 'w').close()\n"
        "while not __import__('os').path.exists('go'): time.sleep(0.02)\n"
    )
    with folder.start("-m", "stoker", "run", script) as process:
        deadline = time.monotonic() + 60
        while not (folder.path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.wait()
        (folder.path / "go").write_text("")
        process.communicate(timeout=60)  # the program has the same pipes
    deadline = time.monotonic() + 30
    while list(folder.temporary.glob("stoker-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_keeps_no_program_from_running(folder: Folder, closed: str) -> None:
    script = folder.write(
        DATA
        + "import sys\ncame = len(list(DataLoader(Items(), batch_size=4, num_workers=1)))\n"
        + "print('printed')\nopen('came', 'w').write(f'{came} {sys.stdout and 1} "
        + "{sys.stderr and 1}')\nsys.exit(3)\n"
    )
    told = []
    for words in (("train.py",), ("-m", "stoker", "run", script)):
        command = shlex.join([sys.executable, *words])
        ended = folder.shell(f"{command} {closed}")
        told.append((ended.code, ended.out, (folder.path / "came").read_text()))
        (folder.path / "came").unlink()
        assert "Traceback" not in ended.err
    assert told[0] == told[1]
    assert told[0][0] == 3
    assert ("stoker run: 1 loader" in ended.err) == ("2>" not in closed)


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_a_summary_for_a_closed_standard_output_is_refused(folder: Folder) -> None:
    folder.write("open('was-run', 'w')")
    ended = folder.shell(f"{sys.executable} -m stoker run --json - train.py >&-")
    assert ended.code == 1
    assert "Standard output is closed" in ended.err
    assert not (folder.path / "was-run").exists()


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_what_goes_to_a_closed_standard_error_is_lost(folder: Folder) -> None:
    script = folder.write(DATA + "print('printed', len(list(DataLoader(Items()))))")
    ended = folder.shell(f"{sys.executable} -m stoker run --json - {script} 2>&-")
    assert ended.code == 0
    assert len(ended.loaders) == 1
