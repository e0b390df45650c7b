"""What no loader can beat: measured in the same run as the loaders."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

START_TIMEOUT_S = 120.0


class Memcpy:
    """Copies a batch's bytes with the C library's own routine, one thread.

    Reads from more memory than a cache holds, as a dataset is, and writes into a few buffers in
    turn that were written before, as recycled slots are.
    """

    def __init__(self, batch_bytes: int, batches: int, buffers: int) -> None:
        self._batch_bytes = batch_bytes
        self._sizes = (batches, buffers)
        self._memory: tuple[torch.Tensor, torch.Tensor] | None = None

    def batch(self, number: int) -> None:
        if self._memory is None:
            sources, targets = (torch.ones(size, self._batch_bytes // 4) for size in self._sizes)
            self._memory = sources, targets
        sources, targets = self._memory
        source = sources[number % len(sources)].data_ptr()
        target = targets[number % len(targets)].data_ptr()
        ctypes.memmove(target, source, self._batch_bytes)


def mean_sample_s(read: Callable[[int], object], indices: Iterable[int]) -> float:
    """The mean time of a sample when one process reads the given ones, one after the other."""
    began = time.perf_counter()
    count = 0
    for index in indices:
        read(index)
        count += 1
    return (time.perf_counter() - began) / count


def independent_per_s(make_batch: Callable[[int], Any], processes: int, seconds: float) -> float:
    """What so many processes do together when nothing joins them: no loader, no transport.

    Args:
        make_batch: makes batch k and can be pickled. Called with ever larger k, in each process
            from another start, with one torch thread, as in a loader's worker.
        processes: how many run at the same time.
        seconds: for how long.

    Returns:
        Batches a second, all together.
    """
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    children: list[SpawnProcess] = []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe()
            child = context.Process(
                target=_run_alone, args=(theirs, make_batch, number, seconds), daemon=True
            )
            child.start()
            theirs.close()
            pipes.append(ours)
            children.append(child)
        for pipe in pipes:
            _receive(pipe, START_TIMEOUT_S)  # ready
        for pipe in pipes:
            pipe.send(None)  # go
        return sum(_receive(pipe, seconds + START_TIMEOUT_S) for pipe in pipes)
    finally:
        for pipe in pipes:
            pipe.close()
        for child in children:
            child.terminate()
            child.join()
            child.close()


def _receive(pipe: Connection, timeout_s: float) -> float:
    if not pipe.poll(timeout_s):
        raise TimeoutError(f"a process that measures a limit said nothing for {timeout_s:.0f} s")
    try:
        rate: float = pipe.recv()
    except EOFError:
        raise RuntimeError("a process that measures a limit died: see what it printed") from None
    return rate


def _run_alone(
    pipe: Connection, make_batch: Callable[[int], Any], number: int, seconds: float
) -> None:
    torch.set_num_threads(1)
    batch = number * 1_000_000
    make_batch(batch)
    pipe.send(0.0)
    pipe.recv()
    count = 0
    began = now = time.perf_counter()
    while now - began < seconds:
        count += 1
        made = make_batch(batch + count)
        now = time.perf_counter()
    del made
    pipe.send(count / (now - began))
