"""``stoker run``: whole programs, with Stoker's loader and as plain Python runs them."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from stoker.report.run import MOST_LINES
from tests.cli.running import DATA, Folder, folder

__all__ = ["folder"]


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
