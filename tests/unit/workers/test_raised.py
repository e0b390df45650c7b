"""Exceptions that are taken to pieces and put together again: whatever their classes do."""

from __future__ import annotations

import builtins
import io
import json
import pickle
import sys
import threading
import traceback
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.errors import ArgumentError, RaisedInWorker
from stoker.workers.raised import Raised

WHERE = "in DataLoader worker process 3, at sample index 17 of batch 4"


def home(error: BaseException) -> BaseException:
    """The exception as it arrives, after its pieces have crossed a pipe."""
    try:
        raise error
    except BaseException as caught:
        raised = Raised.of(caught, WHERE)
    crossed: Raised = pickle.loads(pickle.dumps(raised))
    return crossed.rebuilt()


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


class Coded(Exception):
    """Makes its text of something else, and keeps that."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class ByName(Exception):
    def __init__(self, *, path: str, lock: Any = None) -> None:
        super().__init__(f"{path} is damaged")
        self.path = path
        self.lock = lock


class Prefixing(Exception):
    def __init__(self, text: str) -> None:
        super().__init__("prefix: " + text)


class Ending(Exception):
    """Ends the process that builds it from a text."""

    def __init__(self, parts: Any) -> None:
        if isinstance(parts, str):
            sys.exit(7)
        super().__init__(parts)


class Lying(Exception):
    """Becomes something else."""

    def __reduce__(self) -> Any:
        return str, ("not an exception",)

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one, two)


class Mute(Exception):
    def __str__(self) -> str:
        raise OSError("no text")

    def __repr__(self) -> str:
        raise OSError("no text")


class Unsent(Exception):
    def __reduce__(self) -> Any:
        sys.exit("not to be sent")


class Missing(KeyError):
    pass


def test_one_text_is_torchs_message() -> None:
    error = home(ValueError("broken"))
    assert type(error) is ValueError
    assert str(error).startswith(f"Caught ValueError {WHERE}.\nOriginal Traceback (most recent")
    assert str(error).endswith("ValueError: broken\n")


def test_the_cause_is_what_the_worker_knew() -> None:
    cause = home(ValueError("broken")).__cause__
    assert isinstance(cause, RaisedInWorker)
    assert cause.traceback.endswith("ValueError: broken\n")
    assert WHERE in str(cause)
    assert repr(cause.original) == "ValueError('broken')"


@pytest.mark.parametrize(
    "error",
    [ValueError("broken"), Coded(404), Exception(1, 2), ByName(path="x"), KeyError("a")],
    ids=repr,
)
def test_a_traceback_is_printed_once(error: Exception) -> None:
    assert printed(home(error)).count("raise error") == 1


@pytest.mark.parametrize("kind", [KeyError, Missing])
def test_a_key_error_has_lines(kind: type[KeyError]) -> None:
    error = home(kind("absent"))
    assert type(error) is kind
    assert f"\n{kind.__module__}." in str(error) or "\nKeyError: 'absent'" in str(error)


def test_an_error_of_the_system_keeps_its_number() -> None:
    error = home(FileNotFoundError(2, "No such file or directory", "a.png"))
    assert type(error) is FileNotFoundError
    assert error.errno == 2
    assert "'a.png'" in str(error)
    assert isinstance(error.__cause__, RaisedInWorker)
    assert getattr(error.__cause__.original, "filename", None) == "a.png"


def test_several_arguments_are_kept() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    error = home(caught.value)
    assert type(error) is UnicodeDecodeError
    assert (error.object, error.start, error.end) == (b"\xff", 0, 1)
    assert "Original Traceback" in str(error.__cause__)


def test_what_the_standard_library_raises_is_kept() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    error = home(caught.value)
    assert type(error) is json.JSONDecodeError
    assert error.pos == caught.value.pos


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (Coded(404), {"code": 404}),
        (ByName(path="a.png"), {"path": "a.png", "lock": None}),
        (Prefixing("x"), {}),
        (Ending([1, 2]), {}),
        (Lying("a", "b"), {}),
    ],
    ids=lambda x: type(x).__name__,
)
def test_arguments_and_attributes_are_kept(error: Exception, kept: dict[str, Any]) -> None:
    arrived = home(error)
    assert type(arrived) is type(error)
    assert {name: getattr(arrived, name) for name in kept} == kept
    exact = arrived if arrived.args == error.args else arrived.__cause__.original  # type: ignore[union-attr]
    assert exact.args == error.args


def test_what_does_not_pickle_is_left_behind_and_told() -> None:
    arrived = home(ByName(path="a.png", lock=threading.Lock()))
    assert type(arrived) is ByName
    assert arrived.path == "a.png"
    assert isinstance(arrived.__cause__, RaisedInWorker)
    assert arrived.__cause__.left_behind == {"lock": "lock"}
    assert "without what does not pickle: lock (lock)" in str(arrived.__cause__)


def test_a_type_that_nobody_finds_is_told_by_a_runtime_error() -> None:
    class Local(Exception):
        pass

    error = home(Local("only", "here"))
    assert type(error) is RuntimeError
    assert str(error).startswith(f"Caught Local {WHERE} (told by a RuntimeError")
    assert "('only', 'here')" in str(error)
    assert "Original Traceback" in str(error)


@pytest.mark.parametrize("error", [Mute("x"), Unsent("x")], ids=lambda x: type(x).__name__)
def test_a_class_that_fails_at_everything_arrives_all_the_same(error: Exception) -> None:
    arrived = home(error)
    assert type(error).__name__ in printed(arrived)
    assert "raise error" in printed(arrived)


@pytest.mark.parametrize("error", [StopIteration("early"), StopIteration(1, 2)])
def test_a_stop_iteration_does_not_end_anything(error: Exception) -> None:
    arrived = home(error)
    assert type(arrived) is RuntimeError
    assert str(arrived).startswith("Caught StopIteration")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_keeps_its_type_and_says_why(kind: type[BaseException]) -> None:
    arrived = home(kind(3))
    assert type(arrived) is kind
    assert f"Caught {kind.__name__} {WHERE}" in str(arrived)


def test_our_own_keep_their_four_parts() -> None:
    arrived = home(ArgumentError("x is 3", change="x="))
    assert str(arrived) == "x is 3\n  to change it: x="
    assert WHERE in str(arrived.__cause__)


def test_megabytes_are_cut() -> None:
    arrived = home(ValueError("x" * 5_000_000))
    assert type(arrived) is ValueError
    assert len(str(arrived)) < 1_200_000
    assert "characters left out" in str(arrived)
    assert str(arrived).endswith("x\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups of exceptions")
def test_a_group_keeps_its_exceptions() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]

    class Local(Exception):
        pass

    arrived: Any = home(group("several", [ValueError("a"), OSError(5, "b")]))
    assert type(arrived) is group
    assert [repr(error) for error in arrived.exceptions] == ["ValueError('a')", "OSError(5, 'b')"]
    arrived = home(group("several", [ValueError("a"), Local("b")]))
    assert type(arrived) is group
    assert [type(error) for error in arrived.exceptions] == [ValueError, RuntimeError]


_values = st.sampled_from([None, True, 3, "text", "", b"bytes", [1, "a"], {"a": {2}}, (1,), 2.5])
_kinds = st.sampled_from(
    [
        Exception, ValueError, KeyError, OSError, FileNotFoundError, IndexError, SystemExit,
        StopIteration, ImportError, AttributeError, UnicodeError, ConnectionResetError, Missing,
        Prefixing, Ending, Mute, Unsent, RuntimeError, io.UnsupportedOperation,
    ]
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=_kinds,
    args=st.lists(_values, max_size=4),
    state=st.dictionaries(st.sampled_from("ab"), _values),
)
def test_whatever_is_raised_arrives(kind: Any, args: list[Any], state: dict[str, Any]) -> None:
    try:
        error = kind(*args)
        vars(error).update(state)
    except (Exception, SystemExit):
        return
    arrived = home(error)
    assert type(arrived) in (kind, type(error), RuntimeError)
    assert not isinstance(arrived, StopIteration)
    assert arrived.__cause__ is not None
    assert "raise error" in arrived.__cause__.traceback  # type: ignore[attr-defined]
    if type(arrived) not in (RuntimeError, Mute):
        assert state.items() <= vars(arrived).items()
