"""Workers that are started afresh: without the main module, from one pickle, from a template."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import stoker
from stoker.errors import ArgumentError, NotBuilt, WorkerDied
from stoker.workers import fresh
from tests.datasets import Plain

PROGRAM = """
import dataclasses, enum, functools, os, sys, typing
import torch
from stoker import DataLoader
print("once", flush=True)
torch.set_default_dtype(torch.float64)
os.environ["OF_THE_PROGRAM"] = "set"
sys.path.append("of the program")
OFFSET = 40

class Kind(enum.Enum):
    EVEN = 0
    ODD = 1

@dataclasses.dataclass
class Sample:
    kind: Kind
    value: float
    more: list = dataclasses.field(default_factory=list)

@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

class Base(torch.utils.data.Dataset):
    def __len__(self):
        return 6

class Data(Base):
    class Nested:
        pass
    def __init__(self, function):
        super().__init__()
        self.function = function
    @functools.cached_property
    def table(self):
        return [fib(n) for n in range(6)]
    def __getitem__(self, index):
        assert super().__len__() == 6 and isinstance(self, Base)
        return Sample(Kind(index % 2), self.function(self.table[index])), self.Nested()

def told(batch):
    state = (str(torch.tensor(1.0).dtype), os.environ.get("OF_THE_PROGRAM"), sys.path[-1],
             os.environ.get("PYTHONHASHSEED"), os.getcwd(), sys.flags.dev_mode, hash("a"))
    return batch, os.getpid(), state

made = list(DataLoader(Data(lambda x: x + OFFSET), 2, num_workers=2, collate_fn=told,
                       worker_method="fresh"))
samples = [sample for batch, *_ in made for sample in batch]
assert [s.value for s, _ in samples] == [40, 41, 41, 42, 43, 45], samples
assert all(type(s) is Sample and type(n) is Data.Nested for s, n in samples)
assert [s.kind for s, _ in samples] == [Kind.EVEN, Kind.ODD] * 3
assert dataclasses.asdict(samples[0][0]) == {"kind": Kind.EVEN, "value": 40, "more": []}
assert os.getpid() not in {pid for _, pid, _ in made}
[state] = {state for *_, state in made}
assert state[:6] == ("torch.float64", "set", "of the program", None, os.getcwd(), True), state
print("done")
"""


@pytest.mark.parametrize("how", ["-c", "stdin", "-m"])
def test_a_program_without_a_guard_has_workers_for_what_it_defines(
    tmp_path: Path, how: str
) -> None:
    (tmp_path / "of_the_user.py").write_text(PROGRAM)
    words = {"-c": ["-c", PROGRAM], "stdin": ["-"], "-m": ["-m", "of_the_user"]}[how]
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", *words],
        cwd=tmp_path,
        input=PROGRAM,
        capture_output=True,
        text=True,
        timeout=110,
        env={name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "once\ndone\n"


def registered_and_counted() -> Any:
    """Of a data set of its own class, with functions that share a variable."""

    class Registered:
        names: list[str] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            Registered.names.append(cls.__name__)

    class Data(Registered):
        def __init__(self) -> None:
            self.add, self.get = counter()

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            self.add()
            return [self.get(), list(self.names)]

    class Other(Registered):
        pass

    def counter() -> Any:
        n = 0

        def add() -> None:
            nonlocal n
            n += 1

        return add, lambda: n

    return Data()


@pytest.mark.parametrize("method", ["fork", "fresh"])
def test_functions_share_variables_and_classes_are_registered_once(method: Any) -> None:
    loader = stoker.DataLoader(
        registered_and_counted(), batch_size=None, num_workers=1, worker_method=method
    )
    assert list(loader) == [[n, ["Data", "Other"]] for n in range(1, 5)]


class Pids(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == 5 and self.kills:
            os.kill(os.getpid(), signal.SIGSEGV)
        return os.getpid(), os.getppid()

    kills = False


def epoch(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(
        dataset, batch_size=None, num_workers=2, worker_method="fresh", **options
    )


def kill(pid: int) -> None:
    process, deadline = psutil.Process(pid), time.monotonic() + 30
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.005)


def test_workers_are_replaced_with_their_template_and_no_batch_is_blamed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = epoch(Pids(40), max_restarts=0, persistent_workers=True)
    templates = []
    for _ in range(3):
        iterator = iter(loader)
        templates.append(next(iterator)[1])
        kill(templates[-1])
        assert len(list(iterator)) == 39
    assert len(set(templates)) == 3
    loader._iterator._shutdown_workers()
    assert "the process that fresh workers are forked from has ended (exit code -9)" in caplog.text


def test_each_worker_is_an_interpreter_where_there_are_no_templates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fresh, "has_templates", lambda: False)
    function = 7
    dataset = Plain(4)
    dataset.more = lambda: function  # type: ignore[attr-defined]
    made = list(epoch(Parents(4)))
    assert set(made) == {os.getpid()}


class Parents(Plain):
    def __getitem__(self, index: int) -> Any:
        return os.getppid()


class Opens(Plain):
    """Opens a file when it is unpickled: its position must not be shared by workers."""

    def __init__(self, path: Path, length: int) -> None:
        super().__init__(length)
        self.path = path
        self.__setstate__(vars(self))

    def __getstate__(self) -> Any:
        return {**vars(self), "file": None}

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)
        self.file = self.path.open("rb")

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * 4)
        return int.from_bytes(self.file.read(4), "big"), os.getppid()


def test_a_file_that_is_opened_by_unpickling_is_each_workers_own(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(number.to_bytes(4, "big") for number in range(400)))
    dataset = Opens(path, 400)
    try:
        made = list(epoch(dataset))
    finally:
        dataset.file.close()
    assert [number for number, _ in made] == list(range(400))


def test_a_worker_that_dies_is_told_of_like_any_other() -> None:
    dataset = Pids(8)
    dataset.kills = True
    with pytest.raises(WorkerDied) as caught:
        list(epoch(dataset, max_restarts=0))
    assert caught.value.exitcode == -signal.SIGSEGV
    assert caught.value.pid is not None
    assert "__getitem__" in str(caught.value)


def test_what_can_not_be_unpickled_is_told_of() -> None:
    with pytest.raises(NotBuilt, match="no such thing here"):
        list(epoch(Refuses(3), max_restarts=0))


class Refuses(Plain):
    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("no such thing here")


@pytest.mark.parametrize("method", ["thread", "ray", "other"])
def test_other_methods_are_refused(method: Any) -> None:
    with pytest.raises(ArgumentError, match="worker_method option should be one of 'auto'"):
        stoker.DataLoader([1], worker_method=method)


def test_a_context_and_another_method_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match="mutually exclusive with multiprocessing_context"):
        stoker.DataLoader([1], num_workers=1, worker_method="fresh", multiprocessing_context="fork")
    loader = stoker.DataLoader(
        [1], num_workers=1, worker_method="fork", multiprocessing_context="fork"
    )
    assert loader.worker_method == "fork"
