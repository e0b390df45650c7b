"""What a batch costs, and the stretch of the timeline that is told, from planted records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.tuning.answer import Span
from tests.unit.tuning.planted import answer, own, seen


class TestWork:
    def test_from_the_fewest_that_had_cpus_enough(self) -> None:
        crowded = {"service_s": 0.3, "cpu": 1.0}
        found = answer(
            own(0, 10.0),
            [seen(1, 9.5, service_s=0.1, cpu=1.0)],
            [seen(4, 12.0, **crowded), seen(8, 13.0, **crowded)],
            cpus=(2.0, "affinity"),
            chosen=1,
        )
        assert found.work is not None
        assert found.work.service_s == pytest.approx(0.1)
        assert found.work.cpu_s == pytest.approx(0.1)
        assert found.work.step_s == pytest.approx(0.001)
        assert 0 < found.work.doubt < 0.1

    def test_what_waited_for_a_cpu_is_not_the_work(self) -> None:
        found = answer([seen(2, 15.0, service_s=0.15, starved_s=0.05)], chosen=2)
        assert found.work is not None
        assert found.work.service_s == pytest.approx(0.1)

    def test_memory_and_starts_are_those_of_one_worker(self) -> None:
        found = answer(
            own(0, 10.0, memory_bytes=0),
            [seen(4, 38.0, service_s=0.1, first_batch_s=0.5, memory_bytes=400)],
            chosen=4,
            batch_bytes=64,
        )
        assert found.work is not None
        assert found.work.worker_bytes == 100
        assert found.work.batch_bytes == 64
        assert found.work.start_s == pytest.approx(0.1)

    def test_without_workers_it_is_the_main_process(self) -> None:
        found = answer(own(0, 10.0))
        assert found.work is not None
        assert found.work.service_s == pytest.approx(0.1, rel=0.02)
        assert found.work.worker_bytes is None


SPANS = [
    Span("consumer", "wait", float(at), at + 0.5, at, 0 if at < 100 else 4 if at < 1000 else 2)
    for at in range(3000)
]


class TestTimeline:
    def test_a_stretch_of_what_is_now_and_of_what_is_recommended(self) -> None:
        found = answer(own(0, 10.0), [seen(4, 40.0)], chosen=4, spans=SPANS)
        counts = [span.num_workers for span in found.timeline]
        assert set(counts) == {0, 4}
        assert 300 < len(counts) <= 600
        assert list(found.timeline) == sorted(found.timeline, key=lambda span: span.start_s)

    def test_the_whole_where_it_is_wanted(self) -> None:
        found = answer(own(0, 10.0), spans=SPANS, whole=True)
        assert len(found.timeline) == 3000

    def test_numbers_are_not_mixed(self) -> None:
        """The same number at two times is no one stretch."""
        again = [replace(span, start_s=span.start_s + 5000) for span in SPANS[:100]]
        found = answer(own(0, 10.0), spans=[*SPANS, *again])
        assert {span.num_workers for span in found.timeline} == {0}
        begin, end = found.timeline[0].start_s, found.timeline[-1].start_s
        assert end - begin < 100
