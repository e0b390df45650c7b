"""Runs a function in a process of its own, as a worker would run it, and hands back its result."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PATIENCE_S = 60.0


def in_process(method: str, function: Callable[..., Any], *args: object) -> Any:
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE_S), f"{function.__name__} hangs in a process by {method}"
        return ours.recv()
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _answer(connection: Connection, function: Callable[..., Any], args: tuple[object, ...]) -> None:
    connection.send(function(*args))
