"""Programs in a zip file, and applications that are their own interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.programs.program import PATIENCE_S, run

_OWN = """
SCALE = 1
class Data:
    def __init__(self, function):
        self.function = function
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return self.function(index) * SCALE
"""

_MAIN = """
import stoker
from own.data import Data
from own import data
data.SCALE = 10
made = stoker.DataLoader(Data(lambda x: x + 1), None, num_workers=2, worker_method="fresh")
print(list(made))
"""

# What PyInstaller makes is imitated: the executable is the application, and what it adds hears
# what multiprocessing asks of new processes, in `freeze_support`, on every system.
_FROZEN = """#!{python}
import sys
sys.frozen, sys.executable = True, __file__
import multiprocessing, os
from multiprocessing import spawn
def freeze_support():
    if sys.argv[-2:-1] == ["-c"]:
        exec(sys.argv[-1])
        sys.exit()
    spawn.freeze_support()
multiprocessing.freeze_support = freeze_support
{call}
with open(__file__ + ".runs", "a") as file:
    file.write("run\\n")
import stoker
class Data:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return index + offset, os.getppid()
offset = 40
if __name__ == "__main__":
    options = {{"worker_method": "fresh", "num_workers": 2, "max_restarts": 0}}
    made = list(stoker.DataLoader(Data(), None, **options))
    assert {{parent for _, parent in made}} == {{os.getpid()}}
    print([index for index, _ in made])
"""


def test_a_package_and_a_program_in_a_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as file:
        file.writestr("own/__init__.py", "")
        file.writestr("own/data.py", _OWN)
        file.writestr("__main__.py", _MAIN)
    assert run(["program.zip"], tmp_path).stdout == "[10, 20, 30, 40, 50, 60]\n"


def _run_frozen(folder: Path, call: str) -> tuple[subprocess.CompletedProcess[str], int]:
    application = folder / "application"
    application.write_text(_FROZEN.format(python=sys.executable, call=call))
    application.chmod(0o755)
    ended = subprocess.run(
        [application], capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ}
    )
    return ended, len((folder / "application.runs").read_text().splitlines())


def test_a_frozen_application_is_run_once(tmp_path: Path) -> None:
    ended, runs = _run_frozen(tmp_path, "multiprocessing.freeze_support()")
    assert (ended.stdout, ended.stderr) == ("[40, 41, 42, 43, 44, 45]\n", "")
    assert runs == 1


def test_one_that_does_not_call_freeze_support_says_so_and_starts_no_more(tmp_path: Path) -> None:
    ended, runs = _run_frozen(tmp_path, "")
    assert ended.returncode == 1
    assert "ProgramUnguarded: No worker can be started: this process was started" in ended.stderr
    assert "call multiprocessing.freeze_support() first of all" in ended.stderr
    assert runs < 12
