"""The three global random states are lent, watched, and given back exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order.streams import GlobalStreams
from tests.unit.order.states import reading_memory, states

Act = Callable[[], Any]

DRAWS: dict[str, Act] = {
    "torch uniform": lambda: torch.rand(1),
    "torch Gaussian": lambda: torch.randn(1),
    "torch Gaussian of double precision": lambda: torch.randn(1, dtype=torch.float64),
    "torch many Gaussians": lambda: torch.randn(17),
    "torch shuffle": lambda: torch.randperm(5),
    "torch integer": lambda: torch.randint(3, ()),
    "torch dropout": lambda: torch.dropout(torch.ones(3), 0.5, train=True),
    "torch whole turn": lambda: torch.empty(624, dtype=torch.int32).random_(),
    "torch two turns": lambda: torch.empty(1248, dtype=torch.int32).random_(),
    "torch seeding": lambda: torch.manual_seed(12345),
    "random uniform": random.random,
    "random one bit": lambda: random.getrandbits(1),
    "random gauss": lambda: random.gauss(0, 1),
    "random normal": lambda: random.normalvariate(0, 1),
    "random shuffle": lambda: random.shuffle([1, 2, 3]),
    "random choice": lambda: random.choice("abc"),
    "random whole turn": lambda: random.getrandbits(32 * 624),
    "random seeding": lambda: random.seed(12345),
    "random seeding with text": lambda: random.seed("abc"),
    "numpy uniform": lambda: np.random.rand(),
    "numpy Gaussian": lambda: np.random.randn(),
    "numpy three Gaussians": lambda: np.random.randn(3),
    "numpy shuffle": lambda: np.random.shuffle([1, 2, 3]),
    "numpy integer": lambda: np.random.randint(3),
    "numpy choice": lambda: np.random.choice(4),
    "numpy one byte": lambda: np.random.bytes(1),
    "numpy whole turn": lambda: np.random.bytes(624 * 4),
    "numpy seeding": lambda: np.random.seed(12345),
    "numpy other bits": lambda: np.random.set_bit_generator(np.random.PCG64(1)),
}

CALLERS: dict[str, Act] = {name: DRAWS[name] for name in DRAWS if name != "numpy other bits"}

QUIET: dict[str, Act] = {
    "nothing": lambda: None,
    "tensors": lambda: torch.zeros(3) + torch.arange(3),
    "a generator of its own": lambda: random.Random(3).random(),
    "a torch generator of its own": lambda: torch.rand(2, generator=torch.Generator()),
    "numpy's newer generators": lambda: np.random.default_rng(0).normal(),
    "an old generator of its own": lambda: np.random.RandomState(0).randn(),
    "reading the seed": torch.initial_seed,
}

# A sample can draw from what it reads, or draw and put the state back.
LOOKS: dict[str, Act] = {
    "reading torch's state": lambda: torch.get_rng_state(),
    "torch under fork_rng": lambda: _under_fork_rng(),
    "reading random's state": lambda: random.getstate(),
    "putting random's state back": lambda: random.setstate((random.getstate(), random.random())[0]),
    "reading numpy's state": lambda: np.random.get_state(),
}


def _under_fork_rng() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.rand(1)


draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=4)
callers = st.lists(st.sampled_from(sorted(CALLERS)), max_size=3)
seeds = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def _global_states() -> Iterator[None]:
    bits = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(bits)


def do(acts: dict[str, Act], names: list[str]) -> None:
    for name in names:
        acts[name]()


def numbers() -> list[float]:
    return [
        float(torch.rand(())),
        float(torch.randn(())),
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
    ]


@pytest.mark.parametrize("memory", [True, False])
@given(plan=st.lists(st.tuples(callers, draws, st.booleans(), seeds), min_size=1, max_size=3))
@settings(max_examples=40)
def test_the_states_come_back(
    memory: bool, plan: list[tuple[list[str], list[str], bool, int]]
) -> None:
    with reading_memory(memory):
        streams = GlobalStreams()
        for before, inside, watched, seed in plan:
            do(CALLERS, before)
            expected = states()
            with streams.watched(seed) if watched else streams.lent(seed):
                do(DRAWS, inside)
            assert states() == expected


@pytest.mark.parametrize("watched", [True, False])
def test_the_states_come_back_after_an_exception(watched: bool) -> None:
    streams = GlobalStreams()
    do(DRAWS, ["torch Gaussian", "random gauss", "numpy Gaussian"])
    before = states()

    def broken() -> None:
        do(DRAWS, sorted(DRAWS))
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        streams.watched(1) if watched else streams.lent(1),
    ):
        broken()
    assert states() == before


def test_a_state_that_the_caller_had_before_comes_back_with_its_gaussian() -> None:
    streams = GlobalStreams()
    random.gauss(0, 1)
    np.random.randn()
    saved = random.getstate(), np.random.get_state(legacy=False)
    random.gauss(0, 1)
    np.random.randn()
    with streams.lent(1):
        pass
    with streams.lent(2):
        pass
    random.setstate(saved[0])
    np.random.set_state(saved[1])
    before = states()
    with streams.lent(3):
        pass
    assert states() == before


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_other_bit_generators_of_numpy_come_back(bits: Any) -> None:
    streams = GlobalStreams()
    own = bits(7)
    np.random.set_bit_generator(own)
    for _ in range(3):
        np.random.randn()
        before = states()
        with streams.lent(1):
            np.random.randn()
        assert states() == before
        assert np.random.get_bit_generator() is own
    np.random.set_bit_generator(np.random.MT19937(3))
    before = states()
    with streams.lent(1):
        np.random.randn()
    assert states() == before


@pytest.mark.parametrize("memory", [True, False])
def test_what_is_drawn_follows_from_the_seed(memory: bool) -> None:
    with reading_memory(memory):
        drawn = []
        for caller in (1, 2):
            streams = GlobalStreams()
            torch.manual_seed(caller)
            random.seed(caller)
            np.random.seed(caller)
            random.gauss(0, 1)
            np.random.randn()
            with streams.lent(77):
                first = numbers()
                streams.seed(78)
                second = numbers()
                streams.seed(77)
                assert numbers() == first
            drawn.append(first + second)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 12


def test_the_first_of_torch_and_the_others_are_what_the_seed_gives_everywhere() -> None:
    streams = GlobalStreams()
    seed = (5 << 32) + 9
    with streams.lent(seed):
        drawn = numbers()
    python, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    array = np.random.RandomState((seed ^ 0x9E3779B9) & 0xFFFFFFFF)
    assert drawn == [
        float(torch.rand((), generator=generator)),
        float(torch.randn((), generator=generator)),
        python.random(),
        python.gauss(0, 1),
        float(array.rand()),
        float(array.randn()),
    ]


def test_torch_and_numpy_do_not_draw_the_same_words() -> None:
    with GlobalStreams().lent(3):
        torch_words = torch.empty(8, dtype=torch.int64).random_(0, 2**32).tolist()
        numpy_words = np.random.randint(0, 2**32, 16, dtype=np.uint64).tolist()
    assert set(torch_words).isdisjoint(numpy_words)


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("watched", [True, False])
@given(seed=seeds, again=st.none() | seeds, names=draws.filter(bool))
@settings(max_examples=40)
def test_every_draw_is_noticed(
    memory: bool, watched: bool, seed: int, again: int | None, names: list[str]
) -> None:
    with reading_memory(memory):
        streams = GlobalStreams()
        with streams.watched(seed) if watched else streams.lent(seed):
            if again is not None:
                streams.seed(again)
            do(DRAWS, names)
            assert streams.drawn()


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("name", sorted(LOOKS))
def test_a_state_that_was_read_counts_as_drawn_from(name: str, watched: bool) -> None:
    streams = GlobalStreams()
    for _ in range(2):
        with streams.watched(5) if watched else streams.lent(5):
            assert not streams.drawn()
            LOOKS[name]()
            assert streams.drawn()


def _readers() -> tuple[Any, ...]:
    return torch.get_rng_state, torch.random.get_rng_state, random.getstate, np.random.get_state


READERS = _readers()


def test_the_functions_that_read_states_are_what_they_were() -> None:
    outer, inner = GlobalStreams(), GlobalStreams()
    with pytest.raises(KeyboardInterrupt), outer.lent(1), inner.watched(2):
        raise KeyboardInterrupt
    assert _readers() == READERS


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_each_draw_is_noticed_by_itself_and_forgotten_afterwards(memory: bool, name: str) -> None:
    with reading_memory(memory):
        streams = GlobalStreams()
        for _ in range(2):
            with streams.watched(5):
                assert not streams.drawn()
                DRAWS[name]()
                assert streams.drawn()
            with streams.lent(5):
                assert not streams.drawn()
                DRAWS[name]()
                assert streams.drawn()


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("name", sorted(QUIET))
def test_what_draws_nothing_is_not_taken_for_a_draw(memory: bool, name: str) -> None:
    with reading_memory(memory):
        streams = GlobalStreams()
        do(DRAWS, ["random gauss", "numpy Gaussian"])
        for _ in range(2):
            with streams.watched(5):
                QUIET[name]()
                assert not streams.drawn()
                streams.seed(6)
                QUIET[name]()
                assert not streams.drawn()
            with streams.lent(7):
                QUIET[name]()
                assert not streams.drawn()


def test_watched_states_do_not_depend_on_what_was_done_before() -> None:
    fresh, used = GlobalStreams(), GlobalStreams()
    with used.lent(1):
        numbers()
    with used.watched(2):
        numbers()
    with used.watched(3):
        pass
    drawn = []
    for streams in (fresh, used):
        with streams.watched(9):
            drawn.append(numbers())
    assert drawn[0] == drawn[1]


def test_the_seed_that_torch_shows_is_that_of_the_batch() -> None:
    streams = GlobalStreams()
    shown = []
    with streams.watched(41):
        shown.append(torch.initial_seed())
    with streams.lent(41):
        shown.append(torch.initial_seed())
        for position in (1, 2**63, 41):
            streams.seed(position)
            shown.append(torch.initial_seed())
            torch.rand(3)
            shown.append(torch.initial_seed())
    assert set(shown) == {41}


def test_instances_nest() -> None:
    outer, inner = GlobalStreams(), GlobalStreams()
    do(DRAWS, ["torch Gaussian", "random gauss", "numpy Gaussian"])
    before = states()
    with outer.lent(1):
        alone = numbers() + numbers()
    with outer.lent(1):
        first = numbers()
        between = states()
        for seed in (2, 3):
            with inner.lent(seed):
                numbers()
            with inner.watched(seed):
                numbers()
        assert states() == between
        assert first + numbers() == alone
    with outer.watched(1):
        with inner.lent(2):
            numbers()
        assert not outer.drawn()
    assert states() == before


def test_a_captured_state_is_taken_up_again() -> None:
    streams = GlobalStreams()
    with streams.lent(1):
        numbers()
        random.gauss(0, 1)
        np.random.randn()
        captured = streams.capture()
        expected = numbers()
    with streams.lent(2):
        numbers()
        streams.replace(captured)
        assert numbers() == expected
