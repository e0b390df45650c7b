"""Slots that nobody uses are given back to the system, on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import BatchTooLarge
from stoker.transport.arena import WorkerArena
from stoker.transport.shm import Kind, kind_here
from tests.unit.transport.crossing import Crossing, stacked
from tests.unit.transport.test_recycling import LARGE, crossing, kind, mapped, numbered

__all__ = ["crossing", "kind"]


def pieces(crossing: Crossing) -> tuple[int, int]:
    """Slots that the main process and the worker have."""
    return crossing.slots.count, len(crossing.arena._slots)


def told(crossing: Crossing) -> None:
    """The worker reads what the main process has to say, and makes nothing."""
    released, forgotten = crossing.slots.take_ended()
    crossing.arena.release(released)
    crossing.arena.forget(forgotten)


def test_emptying_gives_back_what_nobody_uses(kind: Kind) -> None:
    before = mapped()
    with Crossing(kind) as crossing:
        kept = [numbered(crossing, number) for number in range(4)]
        del kept[1:3]
        kept_bytes = crossing.slots.size_bytes // 2
        crossing.slots.empty(())
        assert crossing.slots.size_bytes <= kept_bytes
        assert crossing.slots.has_news
        told(crossing)
        assert max(pieces(crossing)) <= 2
        assert not crossing.slots.has_news
        if kind == "memfd":
            assert mapped() <= before + 4  # two batches, each seen from both sides
        assert [int(batch[0]) for batch in kept] == [0, 3]
        kept.clear()
        crossing.slots.empty(())
        told(crossing)
        assert pieces(crossing) == (0, 0)
        assert crossing.slots.size_bytes == 0
        assert mapped() == before
        for number in range(5, 8):
            numbered(crossing, number)
        assert pieces(crossing) == (1, 1)


def test_emptying_spares_a_batch_that_was_not_opened(crossing: Crossing) -> None:
    shipments = [
        crossing.ship(lambda a, n=n: stacked(a, np.full(LARGE, n)))  # type: ignore[misc]
        for n in range(3)
    ]
    crossing.slots.discard(shipments[0])
    crossing.slots.empty({shipments[1].slot, shipments[2].slot, None})
    told(crossing)
    assert pieces(crossing) == (2, 2)
    for number in (1, 2):
        assert (crossing.slots.open(shipments[number]) == number).all()


def test_what_is_given_back_is_not_a_free_slot_too(crossing: Crossing) -> None:
    """A task would be sent for it, and need a new slot: one more than memory allows."""
    crossing.slots.discard(crossing.ship(lambda a: stacked(a, np.full(LARGE, 1))))
    assert crossing.slots.to_be_told == 1
    crossing.slots.empty(())
    assert crossing.slots.to_be_told == 0
    assert crossing.slots.has_news


def test_emptying_twice_and_at_once_after_a_discard_is_harmless(crossing: Crossing) -> None:
    crossing.slots.empty(())
    assert not crossing.slots.has_news
    crossing.slots.discard(crossing.ship(lambda a: stacked(a, np.full(LARGE, 1))))
    crossing.slots.empty(())
    crossing.slots.empty(())
    told(crossing)
    assert pieces(crossing) == (0, 0)
    assert (numbered(crossing, 3) == 3).all()


def test_what_was_emptied_and_did_not_reach_the_worker_is_told_again(crossing: Crossing) -> None:
    numbered(crossing, 1)
    crossing.slots.empty(())
    crossing.slots.put_back(crossing.slots.take_ended())
    assert crossing.slots.has_news
    told(crossing)
    assert pieces(crossing) == (0, 0)


def test_a_slot_that_the_worker_keeps_a_view_of_goes_with_that_view() -> None:
    before = mapped()
    views: list[torch.Tensor] = []

    def make(allocate: Any) -> torch.Tensor:
        made = stacked(allocate, np.full(LARGE, 7))
        views.append(made[:3])
        return made

    with Crossing(kind_here()) as crossing:
        numbered(crossing, 0)
        crossing.carry(make)
        crossing.slots.empty(())
        told(crossing)
        assert crossing.slots.count == 0
        assert views[0].tolist() == [7, 7, 7]
        views.clear()
        assert mapped() == before


def test_a_batch_that_is_copied_out_frees_its_slot_at_once(crossing: Crossing) -> None:
    kept = []
    for number in range(4):
        shipment = crossing.ship(lambda a, n=number: stacked(a, np.full(LARGE, n)))  # type: ignore[misc]
        kept.append(crossing.slots.open(shipment, copy=True))
        assert crossing.slots.lent == 0
        assert crossing.slots.has_news
    assert crossing.made == 1
    kept[0] += 50
    assert [int(batch[-1]) for batch in kept] == [50, 1, 2, 3]


def test_how_many_slots_are_lent_is_known_before_anybody_is_told(crossing: Crossing) -> None:
    kept = [numbered(crossing, number) for number in range(3)]
    assert (crossing.slots.count, crossing.slots.lent) == (3, 3)
    kept.pop()
    assert crossing.slots.lent == 2
    kept.clear()
    assert crossing.slots.lent == 0


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["keep", "drop", "hold", "open", "empty"]), st.integers(0, 9)),
        max_size=16,
    )
)
def test_emptying_at_any_time_changes_nothing_that_is_seen(steps: list[tuple[str, int]]) -> None:
    kept: list[tuple[int, torch.Tensor]] = []
    held: list[tuple[int, Any]] = []
    with Crossing(kind_here()) as crossing:
        for number, (what, at) in enumerate(steps):
            if what == "keep":
                kept.append((number, numbered(crossing, number)))
            elif what == "drop" and kept:
                del kept[at % len(kept)]
            elif what == "hold":
                shipment = crossing.ship(lambda a, n=number: stacked(a, np.full(LARGE, n)))  # type: ignore[misc]
                held.append((number, shipment))
            elif what == "open" and held:
                value, shipment = held.pop(at % len(held))
                kept.append((value, crossing.slots.open(shipment)))
            elif what == "empty":
                crossing.slots.empty({shipment.slot for _, shipment in held})
                assert len(held) <= crossing.slots.count <= len(kept) + len(held)
            assert all((batch == value).all() for value, batch in kept)
        for value, shipment in held:
            assert (crossing.slots.open(shipment) == value).all()
    kept.clear()


def test_a_batch_above_the_limit_leaves_the_slot_as_it_was() -> None:
    with Crossing(kind_here()) as crossing:
        crossing.arena = WorkerArena(kind_here(), batch_limit_bytes=8 * LARGE)
        numbered(crossing, 1)
        with pytest.raises(BatchTooLarge, match=f"{8 * LARGE + 8:,}") as caught:
            crossing.send(torch.zeros(LARGE + 1, dtype=torch.int64))
        assert f"{8 * LARGE:,}" in str(caught.value)
        numbered(crossing, 2)
        assert crossing.made == 1
