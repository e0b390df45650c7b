"""The timelines as Chrome trace events, which Perfetto and chrome://tracing open. Pure.

A loader is a process of the trace, its consumer and each of its workers a thread. Times are
microseconds since the program began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stoker.report.plot_timeline import ordered_tracks
from stoker.tuning.answer import Answer, Report, Span

Event = dict[str, Any]


def trace_json(report: Report) -> str:
    """The trace as text that ends with a newline; valid, and empty of events, without answers.

    Args:
        report: What was found.
    """
    events = [
        event
        for place, answer in enumerate(report.answers)
        for event in _loader_events(answer, place + 1, place)
    ]
    told = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "command": report.command,
            "python": report.software.python,
            "system": report.software.system,
            "cpus": report.cpus.usable.value,
        },
    }
    return json.dumps(told, allow_nan=False) + "\n"


def _loader_events(answer: Answer, pid: int, place: int) -> Iterator[Event]:
    yield _named("process_name", pid, 0, name=answer.name)
    yield _named("process_sort_index", pid, 0, sort_index=place)
    threads = {track: tid for tid, track in enumerate(ordered_tracks(answer.timeline), 1)}
    for track, tid in threads.items():
        yield _named("thread_name", pid, tid, name=track)
        yield _named("thread_sort_index", pid, tid, sort_index=tid)
    for span in answer.timeline:
        yield _complete(span, pid, threads[span.track])
    yield from _worker_counts(answer.timeline, pid)


def _named(kind: str, pid: int, tid: int, **args: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _complete(span: Span, pid: int, tid: int) -> Event:
    args: dict[str, int] = {"num_workers": span.num_workers}
    if span.batch is not None:
        args["batch"] = span.batch
    return {
        "ph": "X",
        "name": span.name,
        "cat": "loading" if span.track != "consumer" else "consumer",
        "pid": pid,
        "tid": tid,
        "ts": _us(span.start_s),
        "dur": max(0.0, _us(span.end_s) - _us(span.start_s)),
        "args": args,
    }


def _worker_counts(spans: tuple[Span, ...], pid: int) -> Iterator[Event]:
    """The number of workers, each time that it is another one."""
    last: int | None = None
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.num_workers != last:
            last = span.num_workers
            yield _counter("workers", span.start_s, pid, last)


def _counter(name: str, at_s: float, pid: int, value: int) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": _us(at_s), "args": {name: value}}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
