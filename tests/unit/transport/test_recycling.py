"""Slots are used again, and never while anybody sees them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import TransportError
from stoker.transport.arena import PrivateArena
from stoker.transport.layout import SMALL_BYTES
from stoker.transport.shm import AttachedSegment, Kind, OwnedSegment, kind_here
from tests.unit.transport.crossing import Crossing, stacked

LARGE = SMALL_BYTES // 8 + 1
linux = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are Linux's")


@pytest.fixture(params=[pytest.param("memfd", marks=linux), "named"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def crossing(kind: Kind) -> Iterator[Crossing]:
    with Crossing(kind) as crossing:
        yield crossing


def numbered(crossing: Crossing, number: int, size: int = LARGE) -> torch.Tensor:
    batch: torch.Tensor = crossing.carry(lambda a: stacked(a, np.full(size, number)))
    assert (batch == number).all()
    return batch


def test_a_batch_that_is_dropped_leaves_its_slot_to_the_next(crossing: Crossing) -> None:
    for number in range(5):
        batch = numbered(crossing, number)
        del batch
    assert crossing.made == 1
    assert {shipment.slot for shipment in crossing.shipments} == {1}


def test_two_slots_serve_a_consumer_that_keeps_one_batch(crossing: Crossing) -> None:
    batch = None
    for number in range(6):
        batch = numbered(crossing, number)
    assert batch is not None
    assert crossing.made == 2


def test_a_batch_that_was_not_opened_leaves_its_slot_to_the_next(crossing: Crossing) -> None:
    for number in range(4):
        crossing.slots.discard(
            crossing.ship(lambda a, n=number: stacked(a, np.full(LARGE, n)))  # type: ignore[misc]
        )
    assert crossing.made == 1


VIEWS: dict[str, Any] = {
    "itself": lambda t: t,
    "a slice": lambda t: t[5:9],
    "a view of a view": lambda t: t.view(-1)[3:].unsqueeze(0)[0, 1:],
    "an array": lambda t: t.numpy(),
    "a slice of an array": lambda t: t.numpy()[4:8],
    "a memoryview": lambda t: memoryview(t.numpy()),
    "its storage": lambda t: torch.tensor([], dtype=t.dtype).set_(t.untyped_storage()),
    "dlpack": lambda t: torch.from_dlpack(t),
    "detached": lambda t: t.detach(),
    "its iterator": lambda t: next(iter(t.view(1, -1))),
    "through autograd": lambda t: t.double().requires_grad_() * t.double(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_any_view_keeps_the_slot(crossing: Crossing, name: str) -> None:
    view = VIEWS[name](numbered(crossing, 1))
    seen = torch.as_tensor(view).tolist()
    for number in range(2, 6):
        numbered(crossing, number)
    assert torch.as_tensor(view).tolist() == seen
    if name != "through autograd":
        assert crossing.made == 2
    del view
    for number in range(6, 9):
        numbered(crossing, number)
    assert crossing.made <= 2


def test_a_view_that_the_worker_keeps_holds_the_slot_too(crossing: Crossing) -> None:
    kept: list[torch.Tensor] = []

    def make(allocate: Any, number: int) -> torch.Tensor:
        made = stacked(allocate, np.full(LARGE, number))
        if number == 2:
            kept.append(made[3:5])
        return made

    for number in range(1, 7):
        batch = crossing.carry(lambda a, n=number: make(a, n))  # type: ignore[misc]
        assert (batch == number).all()
        del batch
        if kept:
            assert kept[0].tolist() == [2, 2]
    assert crossing.made == 2
    kept.clear()
    for number in range(7, 10):
        numbered(crossing, number)
    assert crossing.made == 2


@pytest.mark.parametrize("fate", ["failed", "small"])
def test_what_the_worker_keeps_of_a_batch_that_was_not_sent_holds_the_slot(
    crossing: Crossing, fate: str
) -> None:
    kept: list[torch.Tensor] = []

    def make(allocate: Any) -> Any:
        kept.append(stacked(allocate, np.full(LARGE, 7)))
        return lambda: None if fate == "failed" else "small"

    numbered(crossing, 0)
    if fate == "failed":
        with pytest.raises((AttributeError, TypeError)):
            crossing.carry(make)
    else:
        assert crossing.carry(lambda a: make(a)()) == "small"
    for number in range(3):
        numbered(crossing, number)
    assert (kept[0] == 7).all()
    assert crossing.made == 2
    kept.clear()


@pytest.mark.parametrize("kept_limit", [0, 2, 1000])
@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["none", "whole", "view", "small", "worker"]),
            st.integers(0, 30),
            st.sampled_from([1, 60, LARGE, 3 * LARGE]),
            st.booleans(),
        ),
        max_size=14,
    )
)
def test_what_is_kept_never_changes(
    kept_limit: int, steps: list[tuple[str, int, int, bool]]
) -> None:
    kept: list[tuple[int, Any]] = []
    with Crossing(kind_here(), kept_limit) as crossing:
        for number, (keep, drop, size, in_slot) in enumerate(steps):
            values = np.full(size, number)

            def make(
                allocate: Any, values: Any = values, in_slot: bool = in_slot, keep: str = keep
            ) -> Any:
                large = stacked(allocate, values) if in_slot else torch.from_numpy(values)
                if keep == "worker":
                    kept.append((int(values[0]), large))
                return {"large": large, "small": torch.tensor([int(values[0])])}

            batch = crossing.carry(make)
            if keep == "whole":
                kept.append((number, batch["large"]))
            elif keep == "view":
                kept.append((number, batch["large"].numpy()[-1:]))
            elif keep == "small":
                kept.append((number, batch["small"]))
            del batch
            for value, view in kept:
                assert (view == value).all()
            if kept:
                del kept[drop % (len(kept) + 1) :][:1]
        for value, view in kept:
            assert (view == value).all()
    for value, view in kept:
        assert (view == value).all()
    kept.clear()


def test_beyond_the_limit_batches_are_copied_out(kind: Kind) -> None:
    with Crossing(kind, kept_limit=2) as crossing:
        kept = [numbered(crossing, number) for number in range(7)]
        assert crossing.made == 3
        assert all((batch == number).all() for number, batch in enumerate(kept))
        kept[5] += 100
        kept[0] += 100
        assert (kept[6] == 6).all()
        assert (kept[1] == 1).all()
        del kept[0]
        kept.append(numbered(crossing, 9))
        numbered(crossing, 10)
        assert all((batch == n).all() for n, batch in zip([1, 2, 3, 4], kept[:4], strict=True))
        assert crossing.made == 3
        kept.clear()


def test_small_leaves_do_not_keep_the_slot(crossing: Crossing) -> None:
    labels, arrays, texts = [], [], []
    for number in range(5):
        batch = crossing.carry(
            lambda a, n=number: {  # type: ignore[misc]
                "image": stacked(a, np.full(LARGE, n)),
                "label": stacked(a, np.full(SMALL_BYTES // 8, n)),
                "array": np.full(200, n),
                "text": f"{n}" * 1000,
            }
        )
        labels.append(batch["label"])
        arrays.append(batch["array"])
        texts.append(batch["text"])
        del batch
    assert crossing.made == 1
    assert [int(label[-1]) for label in labels] == list(range(5))
    assert [int(array[-1]) for array in arrays] == list(range(5))
    assert [text[0] for text in texts] == list("01234")


def test_small_batches_take_no_slot(crossing: Crossing) -> None:
    for number in range(3):
        numbered(crossing, number, size=10)
    assert crossing.made == 0
    assert all(shipment.slot is None for shipment in crossing.shipments)


def test_a_batch_that_outgrows_its_slot_moves_and_the_slot_is_retired(
    crossing: Crossing,
) -> None:
    kept = []
    for number in (0, 2, 4):
        numbered(crossing, number, size=(1 + number) * LARGE)
        kept.append(numbered(crossing, number + 1, size=(4 + number) * LARGE)[-3:])
    assert all((view == n).all() for n, view in zip([1, 3, 5], kept, strict=True))
    retired = [slot for shipment in crossing.shipments for slot in shipment.retired]
    assert retired == [1, 3, 5]
    used = [shipment.slot for shipment in crossing.shipments]
    for at, shipment in enumerate(crossing.shipments):
        assert not set(shipment.retired) & set(used[at:])
    kept.clear()


def test_a_batch_that_grows_a_little_at_a_time_does_not_take_a_slot_each(
    crossing: Crossing,
) -> None:
    for number in range(40):
        crossing.send(torch.empty(2 * SMALL_BYTES * (1 + number), dtype=torch.uint8))
    assert crossing.made <= 20


def test_the_largest_free_slot_is_chosen(crossing: Crossing) -> None:
    kept = [numbered(crossing, 0), numbered(crossing, 1, size=6 * LARGE)]
    kept.append(numbered(crossing, 2))
    kept.clear()
    numbered(crossing, 3, size=6 * LARGE)
    made = crossing.made
    numbered(crossing, 4, size=6 * LARGE)
    assert crossing.made == made


def test_closing_leaves_what_is_kept(kind: Kind) -> None:
    with Crossing(kind) as crossing:
        kept = numbered(crossing, 3)
    assert (kept == 3).all()
    kept += 1
    assert (kept == 4).all()


@linux
def test_a_forked_copy_of_this_process_sees_its_batch_unchanged(kind: Kind) -> None:
    reader, writer = os.pipe()
    with Crossing(kind) as crossing:
        batch = numbered(crossing, 1)
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0 if bool((batch == 1).all()) else 1)
        del batch
        for number in range(2, 5):
            numbered(crossing, number)
        os.write(writer, b".")
        _, status = os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    assert os.waitstatus_to_exitcode(status) == 0


@linux
def test_a_slot_that_was_lent_at_a_fork_is_given_up_on_both_sides() -> None:
    before = mapped()
    with Crossing("memfd") as crossing:
        lent = numbered(crossing, 1)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        del lent
        for number in range(2, 6):
            numbered(crossing, number)
        assert 1 not in [shipment.slot for shipment in crossing.shipments[1:]]
        assert crossing.made == 2
        assert mapped() == before + 2
    assert mapped() == before


def test_leases_may_end_in_any_thread_at_any_time(crossing: Crossing) -> None:
    """While one thread opens and drops, the other goes on: nothing is lost or given twice."""
    dropped: list[list[Any]] = [[]]

    def drop(batches: list[Any]) -> None:
        batches.clear()

    for number in range(20):
        dropped[-1].append(numbered(crossing, number))
        if len(dropped[-1]) == 3:
            thread = threading.Thread(target=drop, args=(dropped[-1],))
            thread.start()
            numbered(crossing, 100 + number)
            thread.join()
            dropped.append([])
    dropped.clear()
    assert crossing.made <= 6


@linux
def test_a_memfd_keeps_no_descriptor_and_a_named_segment_no_name(kind: Kind) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Crossing(kind) as crossing:
        numbered(crossing, 0, size=10)
        before = descriptors()
        kept = [numbered(crossing, number) for number in range(5)]
        assert crossing.made == 5
        names = {shipment.new.name for shipment in crossing.shipments if shipment.new}
        assert names.isdisjoint(os.listdir("/dev/shm"))
        assert names == {None} if kind == "memfd" else len(names) == 5
        if kind == "memfd":
            assert descriptors() == before
        else:
            assert descriptors() <= before + 10
        kept.clear()


def mapped() -> int:
    """How many pieces of a slot's memory this process sees."""
    with open("/proc/self/maps") as maps:
        return sum("memfd:stoker" in line for line in maps)


@linux
def test_memory_goes_back_to_the_system_with_the_last_view() -> None:
    before = mapped()
    with Crossing("memfd") as crossing:
        kept = [numbered(crossing, number)[:2] for number in range(3)]
        assert mapped() == before + 6
    assert mapped() == before + 3
    kept.clear()
    assert mapped() == before


def test_a_failure_to_make_memory_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", full, raising=False)
    with pytest.raises(TransportError, match="Too many open files") as caught:
        OwnedSegment("memfd", 12_345)
    assert "12,345" in caught.value.what
    assert "ulimit -n" in caught.value.change
    assert isinstance(caught.value, RuntimeError)


@linux
def test_a_segment_that_cannot_be_attached_says_so(crossing: Crossing) -> None:
    with pytest.raises(TransportError, match="could not be attached"):
        AttachedSegment("psm_no_such_segment", 100, crossing.main)


@linux
def test_a_segment_that_was_never_handed_over_is_closed_with_its_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    segment = OwnedSegment("memfd", 4096)
    segment.lease()[7] = 3
    assert mapped() == 1
    segment.close()
    segment.close()
    assert os.listdir("/proc/self/fd") == before
    assert mapped() == 0


def in_private(arena: PrivateArena, number: int, size: int = LARGE) -> torch.Tensor:
    return stacked(arena.allocate, np.full(size, number))


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from([LARGE, 2 * LARGE, 7 * LARGE])),
        max_size=20,
    )
)
def test_private_memory_that_is_kept_never_changes(steps: list[tuple[bool, int, int]]) -> None:
    arena = PrivateArena(spare_limit=2)
    kept: list[tuple[int, torch.Tensor]] = []
    for number, (keep, drop, size) in enumerate(steps):
        batch = in_private(arena, number, size)
        assert (batch == number).all()
        if keep:
            kept.append((number, batch[-4:]))
        del batch
        if kept and drop < len(kept):
            del kept[drop]
        assert all((view == value).all() for value, view in kept)
    del arena
    assert all((view == value).all() for value, view in kept)


def test_private_memory_is_used_again() -> None:
    arena = PrivateArena()
    addresses = {in_private(arena, number).data_ptr() for number in range(5)}
    assert len(addresses) == 1


def test_private_memory_is_not_wasted_on_much_smaller_tensors() -> None:
    arena = PrivateArena()
    large = in_private(arena, 0, 100 * LARGE).data_ptr()
    assert in_private(arena, 1, LARGE).data_ptr() != large
    assert in_private(arena, 2, 60 * LARGE).data_ptr() == large


def test_no_more_private_memory_is_spared_than_the_limit() -> None:
    arena = PrivateArena(spare_limit=2)
    kept = [in_private(arena, number) for number in range(6)]
    kept.clear()
    in_private(arena, 0)
    assert len(arena._spare) <= 2
