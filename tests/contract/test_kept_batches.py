"""A batch is its consumer's for as long as it is kept, and nothing changes under it."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import queue
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from tests.contract.alike import assert_same
from tests.contract.datasets import Augmented
from tests.contract.methods import (
    Tabled,
    both_segments,
    fixed_batches,
    loader,
    many_workers,
    use_segments,
)
from tests.datasets import Plain

SHAPE = (200, 200)  # 160 KB a sample: a slot of its own
BIG = (520, 520)  # 1.1 MB a sample: over the bound from which memory here is recycled

SLOTS = 2 * (64 + 64 + 4)
"""Two workers run 64 batches ahead at most; as many may be on their way back to them."""


def is_full_of(batch: torch.Tensor, indices: range) -> bool:
    """Whether a batch of `Plain` is what it was when it was made."""
    return all(bool((row == index).all()) for row, index in zip(batch, indices, strict=True))


@both_segments
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_list_of_all_batches(
    num_workers: int, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beyond the number of slots that may be kept at once."""
    use_segments(monkeypatch, segments)
    batches = list(loader(Plain(120, SHAPE), "fork", num_workers, batch_size=2))
    assert len(batches) == 60
    for number, batch in enumerate(batches):
        assert is_full_of(batch, range(2 * number, 2 * number + 2))


def test_a_list_of_all_batches_made_here() -> None:
    batches = list(loader(Plain(24, BIG), "inline", batch_size=2))
    assert len({batch.data_ptr() for batch in batches}) == len(batches)
    for number, batch in enumerate(batches):
        assert is_full_of(batch, range(2 * number, 2 * number + 2))


def test_kept_batches_share_no_memory() -> None:
    batches = list(loader(Plain(80, SHAPE), "fork", batch_size=2))
    spans = sorted((b.data_ptr(), b.data_ptr() + b.nbytes) for b in batches)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_memory_made_here_is_recycled() -> None:
    """What a batch has left serves again, so that no new pages are touched."""
    places = set()
    for batch in loader(Plain(60, BIG), "inline", batch_size=2):
        places.add(batch.data_ptr())
        del batch
    assert len(places) <= 3


@both_segments
def test_slots_are_recycled(segments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_segments(monkeypatch, segments)
    places = set()
    for batch in loader(Plain(800, (100, 100)), "fork", batch_size=1):
        places.add(batch.data_ptr())
        del batch
    assert len(places) <= SLOTS


@both_segments
@pytest.mark.parametrize(
    "view",
    [
        lambda batch: batch[1],
        lambda batch: batch[1][3:9].t(),
        lambda batch: batch.view(-1)[::7],
        lambda batch: batch.numpy()[1],
        lambda batch: batch.numpy()[1].T[2:][::-1],
        lambda batch: torch.from_numpy(batch.numpy()[1]).unsqueeze(0),
        lambda batch: memoryview(batch.numpy()).cast("B")[100:200],
        lambda batch: np.asarray(memoryview(batch.numpy())),
        lambda batch: batch.detach().unbind(0)[0],
        lambda batch: batch.untyped_storage(),
        lambda batch: torch.utils.dlpack.from_dlpack(batch)[0],
    ],
    ids=[
        "row",
        "view of view",
        "steps",
        "array",
        "view of array",
        "tensor of array",
        "buffer",
        "array of buffer",
        "unbound",
        "storage",
        "dlpack",
    ],
)
def test_a_kept_view_keeps_its_batch(
    view: Any, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    kept = []
    for batch in loader(Plain(60, SHAPE), "fork", batch_size=2):
        kept.append((view(batch), bytes_of(view(batch))))
        del batch
        if len(kept) > 3:
            kept.pop(1)
    assert all(bytes_of(part) == before for part, before in kept)


def bytes_of(part: Any) -> bytes:
    """The bytes that a view of any kind shows."""
    if isinstance(part, torch.UntypedStorage):
        return bytes(part[:400])
    if isinstance(part, torch.Tensor):
        return part.contiguous().numpy().tobytes()
    return bytes(part) if isinstance(part, memoryview) else np.ascontiguousarray(part).tobytes()


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_a_view_of_a_view_outlives_its_batch(method: str) -> None:
    shape = BIG if method == "inline" else SHAPE
    kept = []
    for number, batch in enumerate(loader(Plain(40, shape), method, batch_size=2)):
        if number % 3 == 0:
            kept.append((2 * number + 1, batch[1].view(-1)[5:].numpy()[::3]))
        del batch
    for index, view in kept:
        assert (view == index).all()


@both_segments
def test_writing_into_batches_changes_nothing_else(
    segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Augmented(60, SHAPE)
    expected = fixed_batches(dataset, "inline", batch_size=2)
    torch.manual_seed(11)
    kept = []
    for number, batch in enumerate(loader(dataset, "fork", batch_size=2)):
        assert_same(batch, expected[number])
        batch[0].fill_(-1)
        batch[1].fill_(-1)
        if number % 2:
            kept.append(batch)
        del batch
    assert all(bool((batch[0] == -1).all()) for batch in kept)


def test_writing_into_batches_made_here_changes_nothing_else() -> None:
    dataset = Plain(40, BIG)
    for number, batch in enumerate(loader(dataset, "inline", batch_size=2)):
        assert is_full_of(batch, range(2 * number, 2 * number + 2))
        batch.fill_(-1)


class _Remembering(Plain):
    """Hands out the same tensors again and again."""

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        super().__init__(length, shape)
        self.samples = [torch.full(shape, float(index)) for index in range(length)]

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index]


def test_writing_into_batches_leaves_the_dataset_as_it_is() -> None:
    dataset = _Remembering(6, SHAPE)
    options = {"batch_size": 2, "persistent_workers": True, "num_workers": 1}
    with_workers = loader(dataset, "fork", **options)
    for _ in range(3):
        for number, batch in enumerate(with_workers):
            assert is_full_of(batch, range(2 * number, 2 * number + 2))
            batch.fill_(-1)
    del with_workers


class _KeepingCollate:
    """Keeps what it collated, and hands an older batch out once more."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __call__(self, samples: list[torch.Tensor]) -> Any:
        self.kept.append(default_collate(samples))
        older = len(self.kept) // 2
        return self.kept[-1], older, self.kept[older].clone()


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_what_a_collate_function_keeps_is_not_overwritten(method: str) -> None:
    dataset = Plain(120, SHAPE)
    options = {"batch_size": 2, "num_workers": 1, "collate_fn": _KeepingCollate()}
    for number, (batch, older, again) in enumerate(loader(dataset, method, **options)):
        assert is_full_of(batch, range(2 * number, 2 * number + 2))
        assert is_full_of(again, range(2 * older, 2 * older + 2))
        del batch, again


class _CollatedSamples(Plain):
    """Collates within a sample, as a data set of clips does, and keeps what it made."""

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        super().__init__(length, shape)
        self.kept: dict[int, torch.Tensor] = {}

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.kept:
            self.kept[index] = default_collate([super().__getitem__(index)])
        return self.kept[index]


def test_samples_that_were_collated_and_kept_stay() -> None:
    dataset = _CollatedSamples(60, SHAPE)
    order = [i for k in range(60) for i in (k, k // 2)]
    options = {"batch_size": 2, "num_workers": 1, "sampler": order}
    for number, batch in enumerate(loader(dataset, "fork", **options)):
        wanted = order[2 * number : 2 * number + 2]
        assert [float(row.mean()) for row in batch] == wanted
        del batch


def test_batches_can_be_handed_to_another_thread() -> None:
    handed: queue.Queue[Any] = queue.Queue(maxsize=3)
    wrong: list[int] = []

    def consume() -> None:
        while (item := handed.get()) is not None:
            number, batch = item
            if not is_full_of(batch, range(2 * number, 2 * number + 2)):
                wrong.append(number)
            del item, batch

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        for number, batch in enumerate(loader(Plain(160, SHAPE), "fork", batch_size=2)):
            handed.put((number, batch))
            del batch
    finally:
        handed.put(None)
        thread.join()
    assert not wrong


def test_batches_stay_after_the_iterator_and_the_loader_are_gone() -> None:
    made = loader(Plain(40, SHAPE), "fork", batch_size=2)
    iterator = iter(made)
    kept = [next(iterator) for _ in range(5)]
    del iterator, made
    gc.collect()
    for number, batch in enumerate(kept):
        assert is_full_of(batch, range(2 * number, 2 * number + 2))


def test_batches_stay_over_epochs_of_the_same_workers() -> None:
    made = loader(Plain(12, SHAPE), "fork", batch_size=2, persistent_workers=True)
    kept = []
    for _ in range(6):
        for number, batch in enumerate(made):
            if number % 2:
                kept.append((number, batch))
            del batch
    for number, batch in kept:
        assert is_full_of(batch, range(2 * number, 2 * number + 2))
    del made


def test_a_batch_in_a_cycle_is_released_by_the_collector() -> None:
    """Its slot is given back by a finalizer that runs in the middle of anything."""
    for number, batch in enumerate(loader(Plain(200, SHAPE), "fork", batch_size=2)):
        cycle: list[Any] = [batch]
        cycle.append(cycle)
        assert is_full_of(batch, range(2 * number, 2 * number + 2))
        del batch, cycle
        if number % 7 == 0:
            gc.collect()


@both_segments
@settings(max_examples=15)
@given(
    keep_for=st.lists(st.integers(0, 9), min_size=30, max_size=30),
    num_workers=st.sampled_from([0, 1, 2]),
    outgrow=st.booleans(),
)
def test_no_pattern_of_keeping_changes_a_batch(
    segments: str, keep_for: list[int], num_workers: int, outgrow: bool
) -> None:
    """Each batch is kept over so many later ones, then looked at and dropped."""
    with pytest.MonkeyPatch.context() as patch:
        use_segments(patch, segments)
        made = loader(
            Tabled(30, _growing if outgrow else _steady),
            "fork" if num_workers else "inline",
            num_workers,
            batch_size=None,
        )
        kept: dict[int, torch.Tensor] = {}
        for number, batch in enumerate(made):
            kept[number] = batch
            for old in [k for k in kept if k + keep_for[k] <= number]:
                assert bool((kept.pop(old) == old).all())
            del batch
        assert all(bool((batch == number).all()) for number, batch in kept.items())


def _steady(index: int) -> torch.Tensor:
    return torch.full((20_000,), float(index))


def _growing(index: int) -> torch.Tensor:
    return torch.full((2_000 * (index % 13 + 1),), float(index))


@settings(max_examples=8)
@given(keep_for=st.lists(st.integers(0, 7), min_size=12, max_size=12))
def test_no_pattern_of_keeping_changes_a_batch_made_here(keep_for: list[int]) -> None:
    kept: dict[int, torch.Tensor] = {}
    for number, batch in enumerate(loader(Plain(12, BIG), "inline", batch_size=1)):
        kept[number] = batch
        for old in [k for k in kept if k + keep_for[k] <= number]:
            assert bool((kept.pop(old) == old).all())
        del batch
    assert all(bool((batch == number).all()) for number, batch in kept.items())


def test_a_small_field_does_not_keep_a_large_one() -> None:
    """Keeping the labels of a batch must not keep its images: they do not lie beside them."""
    labels, places = [], set()
    for image, label in loader(Tabled(600, _labelled), "fork", batch_size=None):
        labels.append(label)
        places.add(image.data_ptr())
        assert abs(label.data_ptr() - image.data_ptr()) > 2 * image.nbytes
        del image, label
    assert_same(labels, [torch.tensor(index) for index in range(600)])
    assert len(places) <= SLOTS


def _labelled(index: int) -> Any:
    return torch.full((100, 100), float(index)), torch.tensor(index)


def test_the_memory_of_dropped_batches_goes_with_the_iterator() -> None:
    iterator = iter(loader(Plain(8, SHAPE), "fork", batch_size=2))
    batch = next(iterator)
    gone = weakref.ref(batch.untyped_storage())
    del iterator
    assert is_full_of(batch, range(2))
    del batch
    assert gone() is None


@many_workers
def test_kept_batches_never_stall_the_workers() -> None:
    """Every batch is kept, and every worker holds as many as it may."""
    made = loader(Plain(200, (100, 100)), "fork", 4, batch_size=1, prefetch_factor=8)
    batches = list(made)
    assert [float(batch.mean()) for batch in batches] == list(range(200))


def test_torch_can_move_a_batch_to_its_own_shared_memory() -> None:
    """As it does with every tensor that is sent to another process."""
    kept = []
    for number, batch in enumerate(loader(Plain(40, SHAPE), "fork", batch_size=2)):
        kept.append((number, batch.share_memory_()))
        del batch
    for number, batch in kept:
        assert is_full_of(batch, range(2 * number, 2 * number + 2))


def test_batches_can_be_pickled_and_copied() -> None:
    [batch] = loader(Tabled(1, _labelled), "fork", batch_size=None)
    assert_same(pickle.loads(pickle.dumps(batch)), batch)
    assert_same(copy.deepcopy(batch), batch)


def test_threads_may_share_an_iterator_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them finds the end while another waits: that is the end for both."""
    iterator = iter(loader(Tabled(4, int), "fork", 1, batch_size=2))
    pool, waiting, over = iterator._feed._pool, threading.Event(), threading.Event()
    wait, found = pool.wait, []

    def late(timeout_s: float | None) -> Any:
        if threading.current_thread() is other:
            waiting.set()
            assert over.wait(60)
        return wait(timeout_s)

    def take() -> None:
        try:
            found.append(next(iterator, "the end"))
        except Exception as error:
            found.append(error)

    monkeypatch.setattr(pool, "wait", late)
    other = threading.Thread(target=take)
    other.start()
    assert waiting.wait(60)
    assert [batch.tolist() for batch in iterator] == [[0, 1], [2, 3]]
    over.set()
    other.join()
    assert found == ["the end"]
