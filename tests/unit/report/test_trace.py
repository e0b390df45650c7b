"""The trace: what Perfetto expects, and nothing lost of the timelines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.report.trace import trace_json
from stoker.tuning.answer import Report, Span
from tests.unit.report import samples


def events(report: Report) -> list[dict[str, Any]]:
    text = trace_json(report)
    assert text.endswith("}\n")
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == kind]


def test_a_loader_is_a_process_and_each_worker_a_thread() -> None:
    found = events(samples.program())
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in of_kind(found, "M")
        if event["name"] in ("process_name", "thread_name")
    }
    assert names == {
        (1, 0): "train.py:31",
        (1, 1): "consumer",
        (1, 2): "worker 0",
        (1, 3): "worker 1",
        (1, 4): "worker 2",
        (1, 5): "worker 3",
        (2, 0): "train.py:38",
    }
    order = [e["args"]["sort_index"] for e in found if e["name"] == "thread_sort_index"]
    assert order == [1, 2, 3, 4, 5]


def test_each_stretch_is_an_event_in_microseconds() -> None:
    span = Span("worker 3", "make", 1.25, 1.5, 17, 4)
    found = of_kind(events(samples.report(replace(samples.train(), timeline=(span,)))), "X")
    assert found == [
        {
            "ph": "X",
            "name": "make",
            "cat": "loading",
            "pid": 1,
            "tid": 1,
            "ts": 1_250_000.0,
            "dur": 250_000.0,
            "args": {"num_workers": 4, "batch": 17},
        }
    ]


def test_the_number_of_workers_is_counted_when_it_changes() -> None:
    found = of_kind(events(samples.program()), "C")
    assert [event["args"]["workers"] for event in found] == [0, 2, 4]
    assert [event["ts"] for event in found] == sorted(event["ts"] for event in found)


def test_without_answers_it_is_a_trace_without_events() -> None:
    assert events(samples.only_failures()) == []


def test_any_text_stays_text() -> None:
    found = events(samples.hostile())
    assert {event["name"] for event in of_kind(found, "X")} == {samples.HOSTILE}


SPANS = st.builds(
    Span,
    st.sampled_from(["consumer", "worker 0", "worker 11", "other"]),
    st.text(max_size=5),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.none() | st.integers(0, 9),
    st.integers(0, 64),
)


@given(st.lists(SPANS, max_size=6))
def test_every_stretch_is_there_on_its_own_track(spans: list[Span]) -> None:
    found = events(samples.report(replace(samples.train(), timeline=tuple(spans))))
    tracks = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    drawn = of_kind(found, "X")
    assert [(tracks[event["tid"]], event["name"]) for event in drawn] == [
        (span.track, span.name) for span in spans
    ]
    assert all(event["dur"] >= 0 for event in drawn)
