"""How many batches fit, from a limit and the largest of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.feed.room import Room

MIB = 1 << 20


def room(limit_bytes: int, *sizes: int, strict: bool = True) -> Room:
    made = Room(limit_bytes, "planted", strict=strict)
    for size in sizes:
        made.learn(size)
    return made


def test_before_a_size_is_known_one_batch_is_in_flight_where_the_user_set_the_limit() -> None:
    assert room(10 * MIB).most_in_flight == 1
    assert room(10 * MIB, strict=False).most_in_flight > 1_000_000
    assert room(10 * MIB, 0).most_in_flight == 1
    assert not room(10 * MIB).is_scarce


def test_the_largest_batch_counts() -> None:
    assert room(10 * MIB, MIB, 3 * MIB, 2 * MIB).slots == 3
    assert room(10 * MIB, 3 * MIB).most_in_flight == 3


def test_one_batch_always_fits() -> None:
    for strict in (True, False):
        small = room(MIB, 5 * MIB, strict=strict)
        assert (small.slots, small.most_in_flight) == (1, 1)
        assert small.lent_limit == 0
        assert small.is_scarce


def test_only_a_limit_of_the_users_makes_a_batch_an_error() -> None:
    assert room(MIB, strict=True).batch_limit_bytes == MIB
    assert room(MIB, strict=False).batch_limit_bytes is None


def test_many_small_batches_are_not_scarce() -> None:
    assert room(10 * MIB, 10 * 1024).is_scarce is False
    assert room(10 * MIB, 11 * 1024).is_scarce is True


def test_half_of_the_slots_may_be_kept() -> None:
    assert [room(n * MIB, MIB).lent_limit for n in (1, 2, 3, 8)] == [0, 1, 1, 4]


def test_running_ahead_has_a_bound_of_its_own() -> None:
    assert room(10_000 * MIB, MIB).run_ahead == 256
    assert room(10 * MIB, MIB).run_ahead == 10
    assert room(10 * MIB, 20 * MIB).run_ahead == 0


def test_the_limit_can_be_changed() -> None:
    changed = room(10 * MIB, MIB, strict=False)
    changed.set_limit(4 * MIB, "others")
    assert (changed.slots, changed.limit_bytes, changed.source) == (4, 4 * MIB, "others")


sizes = st.integers(0, 1 << 40)


@given(st.integers(1, 1 << 40), st.lists(sizes, max_size=4), st.booleans())
def test_what_may_be_in_flight_fits(limit_bytes: int, learnt: list[int], strict: bool) -> None:
    made = room(limit_bytes, *learnt, strict=strict)
    largest = max(learnt, default=0)
    assert made.slots >= 1
    assert made.most_in_flight >= 1
    assert 0 <= made.lent_limit < max(2, made.slots)
    assert made.slots == 1 or made.slots * largest <= limit_bytes
    if largest:
        assert made.most_in_flight == made.slots
        assert made.run_ahead <= made.slots
    elif strict:
        assert made.most_in_flight == 1


@given(st.integers(1, 1 << 40), sizes, sizes)
def test_larger_batches_never_make_more_room(limit_bytes: int, size: int, more: int) -> None:
    made = room(limit_bytes, size)
    before = made.slots
    made.learn(size + more)
    assert made.slots <= before
