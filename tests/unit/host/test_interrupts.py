"""Ctrl-C while something is cleaned up, or started."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from stoker.host import interrupts
from stoker.host.interrupts import held_back, postponed, undisturbed


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(1)
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def wait_for_it() -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.01)


def test_it_is_late_and_not_lost() -> None:
    done = []
    with held_back():
        press()
        done.append(1)
    with pytest.raises(KeyboardInterrupt):
        wait_for_it()
    assert done == [1]


def test_a_finalizer_goes_to_its_end_and_the_program_hears_of_it() -> None:
    class Thing:
        pass

    done = []
    things = [Thing()]
    weakref.finalize(things[0], undisturbed, lambda: (press(), press(), done.append(1)))
    things.clear()
    with pytest.raises(KeyboardInterrupt):
        wait_for_it()
    assert done == [1]


@pytest.mark.parametrize("told", [True, False])
def test_while_the_program_ends_it_is_dropped(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts._Exit, "begun", not told)
    before = threading.active_count()
    with held_back(ending=told):
        press()
    assert threading.active_count() == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_takes_too_long_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE_S", 0.0)
    with pytest.raises(KeyboardInterrupt), held_back():
        press()


def test_a_programs_own_handler_is_left_alone() -> None:
    came = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    with held_back():
        press()
        assert came == [signal.SIGINT]


def test_another_thread_holds_nothing_back() -> None:
    seen = []

    def clean() -> None:
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=clean)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_what_was_put_off_is_raised_at_the_end_itself() -> None:
    done = []

    def start() -> None:
        with postponed():
            press()
            press()
            done.append(1)
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_programs_own_handler_is_put_off_too_and_called_once() -> None:
    came: list[int] = []

    def own(number: int, frame: object) -> None:
        came.append(number)

    signal.signal(signal.SIGINT, own)
    with postponed():
        press()
        press()
        assert not came
    assert came == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_python_does_not_handle_is_left_alone(ignored: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, ignored)
    with postponed():
        assert signal.getsignal(signal.SIGINT) is ignored


def test_what_takes_too_long_is_put_off_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE_S", 0.0)
    with postponed(), pytest.raises(KeyboardInterrupt):
        press()
