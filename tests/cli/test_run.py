"""``stoker run``: whole programs, with Stoker's loader and as plain Python runs them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker.report.run import MOST_LINES
from tests.cli.command import PACKAGE

DATA = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Items(Dataset):
    def __init__(self, length=24, fault=None):
        self.length, self.fault = length, fault
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if self.fault is not None and index == 5:
            self.fault()
        return torch.rand(2) + index

"""


@dataclass
class Ended:
    code: int
    out: bytes
    err: str

    @property
    def summary(self) -> list[str]:
        """The lines of Stoker's; nothing of the program's may come after them."""
        lines = self.err.splitlines()
        starts = [n for n, line in enumerate(lines) if line.startswith("stoker run:")]
        assert len(starts) == 1, self.err
        return lines[starts[0] :]

    @property
    def loaders(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["loaders"]
        return found


class Folder:
    """Where scripts are written and run."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self.path = path
        self.temporary = temporary

    def write(self, source: str, name: str = "train.py") -> str:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(source)
        return name

    def line(self, code: str, name: str = "train.py") -> int:
        """The number of the line with this code."""
        lines = (self.path / name).read_text().splitlines()
        (number,) = (n for n, line in enumerate(lines, 1) if code in line)
        return number

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, *words], **environment)

    def _start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        paths = [PACKAGE, os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        return subprocess.Popen(
            words,
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.temporary), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def plain(self, *words: str, stdin: bytes = b"", **environment: str) -> Ended:
        with self.start(*words, **environment) as process:
            out, err = process.communicate(stdin, timeout=100)
        return Ended(process.returncode, out, err.decode())

    def shell(self, line: str) -> Ended:
        """What a shell makes of a line."""
        with self._start(["sh", "-c", line]) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err.decode())

    def run(self, *words: str, stdin: bytes = b"", **environment: str) -> Ended:
        """`stoker run`; nothing of it is left in the temporary folder."""
        ended = self.plain("-m", "stoker", "run", *words, stdin=stdin, **environment)
        assert list(self.temporary.glob("stoker-*")) == []
        return ended


@pytest.fixture
def folder(tmp_path: Path, short_path: Path) -> Folder:
    return Folder(tmp_path, short_path)


def test_a_program_cannot_tell_the_difference(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
import sys
out = sys.stdout.buffer
told = (__name__, __file__, sys.argv, sys.path, sys.stdin.buffer.read(), sys.flags)
out.write(repr(told).encode() + b"\\x00\\xff\\r\\n")
torch.manual_seed(1)
for batch in DataLoader(Items(8), batch_size=4, shuffle=True):
    out.write(repr(batch.long().tolist()).encode())
"""
    )
    words = ("-x", "--help", "-h", "--workers", "keep", "--", "a b")
    plain = folder.plain(script, *words, stdin=b"\x01typed\n")
    ours = folder.run(script, *words, stdin=b"\x01typed\n")
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert plain.err == ""
    assert ours.err.splitlines() == ours.summary
    line = folder.line("in DataLoader(")
    assert f"train.py:{line}: 0 workers (the program says 0)" in ours.summary[1]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a reason')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_it_ends_as_the_program_ends(folder: Folder, source: str, code: int) -> None:
    script = folder.write(source)
    plain, ours = folder.plain(script), folder.run(script)
    assert (ours.code, plain.code) == (code, code)
    assert ours.err == plain.err + "stoker run: the program made no DataLoader\n"


def test_torchs_class_is_replaced_wherever_it_is_to_be_had(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
import abc, copy, inspect, pickle
import torch.utils.data.dataloader as module
import stoker, stoker.loader

assert module.DataLoader is DataLoader is torch.utils.data.DataLoader
assert (DataLoader.__module__, DataLoader.__qualname__) == (module.__name__, "DataLoader")
assert pickle.loads(pickle.dumps(DataLoader)) is DataLoader
names = list(inspect.signature(DataLoader).parameters)
assert names[:6] == "dataset batch_size shuffle sampler batch_sampler num_workers".split()
assert "seed" not in names
assert inspect.signature(DataLoader).parameters["num_workers"].default == 0
assert list(inspect.signature(DataLoader.__init__).parameters) == ["self", *names]
assert DataLoader[int] is not None and not inspect.get_annotations(DataLoader)

loader = DataLoader(Items(), batch_size=4, num_workers=2)
assert type(loader) is DataLoader and isinstance(loader, stoker.loader.DataLoader.__mro__[2])
assert len(pickle.loads(pickle.dumps(loader))) == len(copy.copy(loader)) == 6
own = stoker.DataLoader(Items(), batch_size=4, seed=3)
assert isinstance(own, DataLoader) and type(own) is stoker.DataLoader is stoker.loader.DataLoader
assert len(list(own)) == 6

class Mine(DataLoader[int], abc.ABC):
    def __init__(self, extra, **others):
        super().__init__(Items(), **others)
        self.extra = extra
mine = Mine(1, batch_size=8)
assert len(list(mine)) == 3 and isinstance(mine, DataLoader) and issubclass(Mine, DataLoader)
try:
    DataLoader(Items(), nonsense=1)
except TypeError as error:
    assert "unexpected keyword argument 'nonsense'" in str(error)
"""
    )
    ended = folder.run(script)
    assert ended.code == 0, ended.err
    line = folder.line("mine = Mine")
    assert any(f"train.py:{line}: 0 workers" in told for told in ended.summary), ended.err


DIGEST = (
    DATA
    + """
import hashlib, random, sys
import numpy as np
class Augmented(Items):
    def __getitem__(self, index):
        return super().__getitem__(index) + random.random() + np.random.rand() + torch.rand(1)
torch.manual_seed(11)
random.seed(11)
np.random.seed(11)
loader = DataLoader(Augmented(64), batch_size=4, shuffle=True, num_workers=int(sys.argv[1]))
digest = hashlib.sha256()
for epoch in range(2):
    for batch in loader:
        digest.update(batch.numpy().tobytes())
print(digest.hexdigest(), torch.rand(1), random.random(), np.random.rand())
"""
)


@pytest.mark.parametrize(("chosen", "kept"), [("2", "0"), ("0", "2")])
def test_the_batches_do_not_depend_on_who_chooses(folder: Folder, chosen: str, kept: str) -> None:
    script = folder.write(DIGEST)
    auto = folder.run("--workers", "auto", script, chosen)
    keep = folder.run("--workers", "keep", script, kept)
    assert (auto.code, auto.out) == (0, keep.out)
    assert f"(the program says {chosen})" in auto.summary[1]
    assert f"{kept} workers as the program says" in keep.summary[1]


def test_processes_of_the_program_are_merged(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
import multiprocessing, os
def rank(number):
    for batch in DataLoader(Items(), batch_size=4, num_workers=number):
        pass
def killed():
    list(DataLoader(Items(), batch_size=4))
    os._exit(0)
if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        ranks = [context.Process(target=rank, args=(n,)) for n in range(2)]
        ranks.append(context.Process(target=killed))
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
            assert each.exitcode == 0
"""
    )
    ended = folder.run("--json", "-", script)
    assert ended.code == 0, ended.err
    lines = {line["site"]["line"]: line for line in ended.loaders}
    number = folder.line("num_workers=number")
    line = lines[number]
    assert (line["processes"], line["batches"], line["asked"]) == (4, 24, [0, 1])
    assert lines[folder.line("list(DataLoader")]["processes"] == 2
    assert f"train.py:{number} in 4 processes" in "\n".join(ended.summary)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_program_without_a_guard_is_run_once(folder: Folder, method: str) -> None:
    """Its workers would import it, and train too."""
    script = folder.write(
        DATA
        + f"""
import time
import torch.multiprocessing
torch.multiprocessing.set_start_method({method!r})
print("once")
loader = DataLoader(Items(20_000), batch_size=1, collate_fn=lambda samples: time.sleep(0.01))
for number, _ in enumerate(loader):
    if number == 300:
        break
"""
    )
    ended = folder.run("--json", "out.json", script)
    assert ended.code == 0, ended.err
    assert ended.out == b"once\n"
    assert (
        'the program would run again in each, as it has no `if __name__ == "__main__":`'
        in (json.loads((folder.path / "out.json").read_text())["loaders"][0]["reason"])
    )


def test_a_module_and_a_command_are_run(folder: Folder) -> None:
    source = DATA + "import sys\nlist(DataLoader(Items()))\nprint(sys.argv[1:], sys.path[0] != '')"
    folder.write("", "jobs/__init__.py")
    folder.write(source, "jobs/train.py")
    module = folder.run("-m", "jobs.train", "-m", "x")
    assert module.out == folder.plain("-m", "jobs.train", "-m", "x").out
    assert "train.py:16: 0 workers" in module.summary[1]
    command = folder.path / "bin" / "launcher"
    folder.write(f"#!/bin/sh\nexec '{sys.executable}' jobs/train.py \"$@\"\n", "bin/launcher")
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    launched = folder.run("launcher", "--help", PATH=path)
    assert launched.out == b"['--help'] True\n"
    assert "train.py:16: 0 workers" in launched.summary[1]


def test_what_stoker_cannot_serve_runs_on_torchs_with_the_reason(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
import multiprocessing
class Own(DataLoader):
    def _get_iterator(self):
        return super()._get_iterator()
print(len(list(Own(Items(), batch_size=4, num_workers=1))))
print(len(list(DataLoader(Items(), batch_size=4))))
"""
    )
    ended = folder.run(script)
    assert (ended.code, ended.out) == (0, b"6\n6\n")
    told = "\n".join(ended.summary)
    reason = "Own._get_iterator replaces a private part of PyTorch's loader"
    own, other = folder.line("list(Own("), folder.line("list(DataLoader(")
    assert f"train.py:{own}: PyTorch's own loader with 1 worker: {reason}" in told
    assert f"train.py:{other}: 0 workers (the program says 0)" in told


def test_a_stoker_that_fails_leaves_the_program_alone(folder: Folder) -> None:
    folder.write("raise ImportError('this one is broken')", "hidden/stoker/__init__.py")
    script = folder.write(DATA + "print(len(list(DataLoader(Items(), batch_size=4))))")
    hides = f"import sys; sys.path.insert(0, {str(folder.path / 'hidden')!r})\n"
    folder.write(hides + (folder.path / script).read_text())
    ended = folder.run(script)
    assert (ended.code, ended.out) == (0, b"6\n")
    assert "PyTorch's own loader was used: ImportError: this one is broken" in ended.summary[1]


def test_the_programs_errors_are_its_own(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
def fault():
    raise LookupError("sample 5 is broken")
def train(workers):
    for batch in DataLoader(Items(fault=fault), batch_size=2, num_workers=workers):
        pass
import sys
train(int(sys.argv[1]))
"""
    )
    for workers in ("0", "1"):
        ended = folder.run(script, workers)
        assert ended.code == 1
        assert "LookupError: " in ended.err
        assert "sample 5 is broken" in ended.err
        assert 'train.py", line 19, in train' in ended.err


def test_the_summary_stays_short_with_many_loaders(folder: Folder) -> None:
    lines = "\n".join("list(DataLoader(Items(2)))" for _ in range(40))
    ended = folder.run("--json", "told.json", folder.write(DATA + lines))
    assert len(ended.summary) == MOST_LINES
    assert ended.err.splitlines() == ended.summary
    told = json.loads((folder.path / "told.json").read_text())
    assert len(told["loaders"]) == 40
    assert told["returncode"] == 0


def test_an_iterable_data_set_keeps_its_shards(folder: Folder) -> None:
    script = folder.write(
        DATA
        + """
class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id if info else 0, 12, info.num_workers if info else 1))
print([batch.tolist() for batch in DataLoader(Stream(), batch_size=2, num_workers=2)])
"""
    )
    ended = folder.run(script)
    assert ended.out == folder.plain(script).out
    assert "2 workers as the program says" in ended.summary[1]


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["trian.py"], "did you mean 'train.py'?"),
        (["-m", "no_such_module"], "There is no module 'no_such_module'."),
        (["no-such-command"], "There is no command 'no-such-command'."),
        (["--json", "no/such/folder.json", "train.py"], "Can't write"),
        ([], "No program was named."),
    ],
)
def test_a_wrong_command_line_is_told_at_once(folder: Folder, words: list[str], told: str) -> None:
    folder.write("open('was-run', 'w')")
    ended = folder.run(*words)
    assert ended.code == 1
    assert told in ended.err
    assert "Traceback" not in ended.err
    assert not (folder.path / "was-run").exists()


def test_accelerates_loaders_are_served(folder: Folder) -> None:
    pytest.importorskip("accelerate")
    script = folder.write(
        DATA
        + """
from accelerate import Accelerator
loader = DataLoader(Items(), batch_size=4, num_workers=3)
loader = Accelerator(cpu=True).prepare(loader)
print(len([batch for epoch in range(2) for batch in loader]))
"""
    )
    ended = folder.run("--json", "-", script)
    assert ended.code == 0, ended.err
    (line,) = ended.loaders
    made = folder.line("= DataLoader(")
    assert (line["site"]["line"], line["asked"], line["batches"]) == (made, [3], 12)
    assert (line["automatic"], line["fallback"], line["site"]["library"]) == (True, "", "")


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
