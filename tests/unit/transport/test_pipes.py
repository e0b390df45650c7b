"""Pipes that pass descriptors on, and do not wait for ever for the rest of a message."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from stoker.transport.pipes import (
    bound_waiting,
    never_wait,
    receive_descriptor,
    send_descriptor,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other pipes")
Ends = tuple[Connection, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = multiprocessing.Pipe(duplex=True)
    yield ours, theirs
    ours.close()
    theirs.close()


def passed_on(ends: Ends) -> int:
    """Passes a descriptor on and closes the first; returns the second."""
    reader, writer = os.pipe()
    send_descriptor(ends[1], reader, None)
    os.close(reader)
    received = receive_descriptor(ends[0])
    os.write(writer, b"x")
    os.close(writer)
    return received


def test_a_descriptor_is_passed_on(ends: Ends) -> None:
    received = passed_on(ends)
    assert os.read(received, 1) == b"x"
    os.close(received)


def test_a_program_s_default_time_out_does_not_reach_the_pipe(ends: Ends) -> None:
    """With `socket.fromfd`, the pipe would never block again, at neither end."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.5)
    try:
        bound_waiting(ends[0])
        os.close(passed_on(ends))
    finally:
        socket.setdefaulttimeout(before)
    assert [os.get_blocking(end.fileno()) for end in ends] == [True, True]


def half(ends: Ends) -> None:
    os.write(ends[1].fileno(), struct.pack("!i", 100) + b"x" * 50)


def test_the_rest_of_a_message_is_not_waited_for_for_ever(ends: Ends) -> None:
    bound_waiting(ends[0], answer_s=0.05)
    half(ends)
    began = time.monotonic()
    with pytest.raises(OSError, match="unavailable"):
        ends[0].recv_bytes()
    assert time.monotonic() - began >= 0.05


def test_nor_is_a_descriptor(ends: Ends) -> None:
    bound_waiting(ends[0], answer_s=0.05)
    with pytest.raises(OSError, match="unavailable"):
        receive_descriptor(ends[0])


def test_nor_somebody_who_reads_nothing(ends: Ends) -> None:
    bound_waiting(ends[0], read_s=0.05)
    with pytest.raises(BlockingIOError):
        ends[0].send_bytes(bytes(4 << 20))


def test_of_the_dead_what_is_there_is_read_at_once(ends: Ends) -> None:
    ends[1].send_bytes(b"whole")
    half(ends)
    never_wait(ends[0])
    assert ends[0].recv_bytes() == b"whole"
    with pytest.raises(OSError, match="unavailable"):
        ends[0].recv_bytes()


def test_a_descriptor_outlives_its_sender(ends: Ends) -> None:
    """What a worker has handed over before it dies is received."""
    process = multiprocessing.get_context("fork").Process(target=_send_and_die, args=(ends,))
    process.start()
    process.join()
    assert process.exitcode == 7
    process.close()
    received = receive_descriptor(ends[0])
    assert os.read(received, 5) == b"alive"
    os.close(received)


def _send_and_die(ends: Ends) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"alive")
    send_descriptor(ends[1], reader, None)
    os._exit(7)
