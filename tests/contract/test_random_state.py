"""What is random: it repeats, it differs where it should, and the caller's state stays."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from tests.contract.alike import assert_same
from tests.contract.datasets import SwappingBits, collate_drawing
from tests.contract.methods import loader, many_workers, seeded_epochs
from tests.datasets import Drawing, DrawingStream, Failing, Plain, draw_all


def states() -> Any:
    """The three global random states, whole."""
    torch_state = torch.get_rng_state().numpy().tobytes()
    numpy_state = np.random.get_state(legacy=False)
    return torch_state, random.getstate(), str(numpy_state), id(np.random.get_bit_generator())


def pending_gaussians() -> None:
    """Leaves half of a pair of normal numbers waiting in all three generators."""
    torch.randn(1)
    random.gauss(0, 1)
    np.random.randn()


@pytest.fixture(autouse=True)
def _own_states() -> Iterator[None]:
    bits = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(bits)


def numbers(batches: list[Any]) -> torch.Tensor:
    """Every random number of a `Drawing` loader's batches: a row a sample."""
    columns = [
        torch.cat([batch[i].reshape(len(batch[0]), -1) for batch in batches]).double()
        for i in range(1, 6)
    ]
    return torch.cat(columns, dim=1)


@pytest.mark.parametrize("prepare", [lambda: None, pending_gaussians], ids=["even", "pending"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: loader(Drawing(20), "inline", batch_size=4),
        lambda: loader(Drawing(20), "inline", batch_size=4, collate_fn=collate_drawing),
        lambda: loader(Drawing(20), "inline", batch_size=None),
        lambda: loader(Plain(20), "inline", batch_size=4),
        lambda: loader(DrawingStream(20), "inline", batch_size=4),
        lambda: loader(SwappingBits(20), "inline", batch_size=4),
        lambda: loader(Drawing(20), "fork", batch_size=4),
    ],
    ids=["samples", "collate", "single", "no draws", "iterable", "swapped", "workers"],
)
def test_loading_leaves_the_callers_state(
    prepare: Callable[[], None], make: Callable[[], Any]
) -> None:
    iterator = iter(make())
    prepare()
    before = states()
    for _ in iterator:
        assert states() == before
    assert states() == before


def test_numbers_drawn_between_batches_are_the_callers_own() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    iterator = iter(loader(Drawing(12), "inline", batch_size=2))
    between = [draw_all() for _ in iterator]
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    iter(loader(Plain(12), "inline", batch_size=2))
    assert_same(between, [draw_all() for _ in range(6)])


def test_a_failing_sample_leaves_the_callers_state() -> None:
    iterator = iter(loader(Failing(4, 2), "inline"))
    pending_gaussians()
    next(iterator)
    before = states()
    next(iterator)
    with pytest.raises(ValueError, match="broken"):
        next(iterator)
    assert states() == before


def test_a_failing_collate_leaves_the_callers_state() -> None:
    def collate(samples: list[Any]) -> Any:
        draw_all()
        raise ArithmeticError

    iterator = iter(loader(Drawing(4), "inline", collate_fn=collate))
    pending_gaussians()
    before = states()
    with pytest.raises(ArithmeticError):
        next(iterator)
    assert states() == before


def test_a_pending_gaussian_that_was_put_back_stays() -> None:
    """The words of numpy's state are the same with a pending Gaussian and without."""
    iterator = iter(loader(Drawing(6), "inline"))
    np.random.seed(3)
    np.random.randn()
    with_pending = np.random.get_state()
    np.random.randn()
    next(iterator)
    np.random.set_state(with_pending)
    next(iterator)
    assert str(np.random.get_state()) == str(with_pending)


def test_a_python_state_that_was_put_back_stays() -> None:
    iterator = iter(loader(Drawing(6), "inline"))
    random.seed(3)
    random.gauss(0, 1)
    with_pending = random.getstate()
    random.gauss(0, 1)
    next(iterator)
    random.setstate(with_pending)
    next(iterator)
    assert random.getstate() == with_pending


def test_another_numpy_generator_of_the_callers_stays() -> None:
    np.random.set_bit_generator(np.random.PCG64(7))
    iterator = iter(loader(Drawing(6), "inline"))
    np.random.randn()
    before = states()
    next(iterator)
    assert states() == before


@settings(max_examples=30)
@given(
    steps=st.lists(
        st.sampled_from(
            [
                "batch",
                "torch",
                "torch normal",
                "python",
                "python normal",
                "numpy",
                "numpy normal",
                "keep",
                "put back",
            ]
        ),
        max_size=14,
    )
)
def test_the_callers_numbers_are_what_they_would_be_alone(steps: list[str]) -> None:
    """Whatever the caller draws, keeps and restores between batches."""

    def run(iterator: Any) -> list[Any]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        kept: Any = None
        seen = []
        for step in steps:
            if step == "batch" and iterator is not None:
                next(iterator)
            elif step == "keep":
                kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
            elif step == "put back" and kept is not None:
                torch.set_rng_state(kept[0])
                random.setstate(kept[1])
                np.random.set_state(kept[2])
            elif step in DRAWS:
                seen.append(DRAWS[step]())
        return [*seen, draw_all()]

    iterator = iter(loader(Drawing(20), "inline"))
    assert_same(run(iterator), run(None))


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "torch normal": lambda: float(torch.randn(())),
    "python": random.random,
    "python normal": lambda: random.gauss(0, 1),
    "numpy": lambda: float(np.random.rand()),
    "numpy normal": lambda: float(np.random.randn()),
}


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_the_same_seed_repeats(method: str) -> None:
    make = functools.partial(loader, Drawing(12), method, batch_size=5)
    assert_same(seeded_epochs(make, 2), seeded_epochs(make, 2))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["inline", "fork"])
def test_samples_epochs_and_seeds_differ(method: str, persistent: bool) -> None:
    options = {"batch_size": 7, "persistent_workers": persistent}
    make = functools.partial(loader, Drawing(30), method, **options)
    runs = [seeded_epochs(make, 3, seed) for seed in (0, 1)]
    rows = torch.cat([numbers(epoch) for run in runs for epoch in run])
    for column in rows.T:
        assert column.unique().numel() == len(rows) == 180


def test_the_three_generators_differ_from_each_other() -> None:
    [epoch] = seeded_epochs(functools.partial(loader, Drawing(30), "inline", batch_size=30))
    rows = numbers(epoch)
    for left, right in itertools.combinations(rows.T, 2):
        assert not torch.equal(left, right)


def test_batches_are_collated_with_different_numbers() -> None:
    make = functools.partial(loader, Plain(20), "inline", batch_size=2, collate_fn=collate_drawing)
    epochs = seeded_epochs(make, 2)
    drawn = torch.cat([batch[1][0] for epoch in epochs for batch in epoch])
    assert drawn.unique().numel() == drawn.numel()


def test_collate_does_not_repeat_a_samples_numbers() -> None:
    make = functools.partial(loader, Drawing(8), "inline", collate_fn=collate_drawing)
    [epoch] = seeded_epochs(make)
    samples = torch.cat([batch[0][1].flatten() for batch in epoch])
    batches = torch.cat([batch[1][0] for batch in epoch])
    both = torch.cat([samples, batches])
    assert both.unique().numel() == both.numel()


@many_workers
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_an_iterable_draw_different_numbers(persistent: bool) -> None:
    options = {"batch_size": 3, "persistent_workers": persistent}
    make = functools.partial(loader, DrawingStream(30), "fork", 3, **options)
    first, again = seeded_epochs(make, 2), seeded_epochs(make, 2)
    assert_same(first, again)
    rows = torch.cat([numbers(epoch) for epoch in first])
    for column in rows.T:
        assert column.unique().numel() == len(rows) == 60


@many_workers
@pytest.mark.parametrize("method", ["inline", "fork"])
def test_the_caller_draws_the_same_after_an_epoch(method: str) -> None:
    """A program's later random numbers do not depend on num_workers either."""
    after = []
    for num_workers in (1, 3):
        seeded_epochs(functools.partial(loader, Drawing(9), method, num_workers, shuffle=True), 2)
        after.append(states()[0])
    torch.manual_seed(11)
    reference = loader(Plain(9), "inline", shuffle=True)
    for _ in range(2):
        list(reference)
    assert after == [states()[0]] * 2


def test_loaders_that_take_turns_do_not_touch_each_other() -> None:
    torch.manual_seed(0)
    first, second = (iter(loader(Drawing(8), "inline", batch_size=2)) for _ in range(2))
    mixed = [(next(first), next(second)) for _ in range(4)]
    torch.manual_seed(0)
    alone = [list(x) for x in [iter(loader(Drawing(8), "inline", batch_size=2)) for _ in range(2)]]
    assert_same([a for a, _ in mixed], alone[0])
    assert_same([b for _, b in mixed], alone[1])


class _Outer(Plain):
    """Every sample is an epoch of a loader of its own."""

    def __getitem__(self, index: int) -> Any:
        inner = stoker.DataLoader(Drawing(4), batch_size=2, shuffle=True)
        return numbers(list(inner)), draw_all()


def test_a_loader_inside_a_dataset_is_the_same_everywhere() -> None:
    [inline] = seeded_epochs(functools.partial(loader, _Outer(6), "inline", batch_size=2))
    [forked] = seeded_epochs(functools.partial(loader, _Outer(6), "fork", batch_size=2))
    assert_same(forked, inline)
    assert torch.cat([batch[0].flatten() for batch in inline]).unique().numel() > 6
