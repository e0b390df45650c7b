"""Classes that go by value are made again as they were, slots included."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import dataclasses, pickle, subprocess, sys, typing
from stoker.workers import by_value

T = typing.TypeVar("T")

class Generic(typing.Generic[T]):
    __slots__ = ("first", "second")

class Narrower(Generic[int]):
    __slots__ = ("third",)

class Named(typing.NamedTuple, typing.Generic[T]):
    value: T

@dataclasses.dataclass(slots=True)
class Data(typing.Generic[T]):
    value: T
    other: int = 3

class Empty(typing.Protocol[T]):
    __slots__ = ()
    def go(self) -> T: ...

class Filled(Empty[int]):
    __slots__ = "only"

class Private:
    __slots__ = {"__own": "told", "__dict__": ""}

KINDS = [Generic, Narrower, Named, Data, Empty, Filled, Private]

def told(kinds):
    return [
        (kind.__qualname__, kind.__slots__, [base.__name__ for base in kind.__mro__],
         [base.__name__ for base in kind.__mro__ if "__dict__" in vars(base)],
         sorted(name for name, value in vars(kind).items() if "member" in type(value).__name__))
        for kind in kinds
    ]

class Given:
    def __setstate__(self, state):
        print(repr(told(state["kinds"])), flush=True)

given = Given()
given.kinds, given.told = KINDS, told
print(repr(told(KINDS)), flush=True)
READ = "import sys; from stoker.workers import by_value; by_value.loads(sys.stdin.buffer.read())"
subprocess.run([sys.executable, "-c", READ], input=by_value.dumps(given), check=True)
"""


def test_classes_of_a_program_keep_their_slots() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    here, there = ended.stdout.splitlines()
    assert there == here
    assert "('Data', ('value', 'other'), ['Data', 'Generic', 'object'], []," in here
