"""What goes wrong in user code arrives as itself, in its turn, and the loader goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.contract.methods import Tabled, answers, every_method, loader, many_workers
from tests.datasets import Failing, Plain


class NeedsTwo(Exception):
    """Cannot be built from one message."""

    def __init__(self, tracker: str, gradient: str) -> None:
        super().__init__(tracker, gradient)


class FailsToBuild(Exception):
    """Raises another error while it is built again."""

    def __init__(self, **fields: str) -> None:
        super().__init__(fields["error"])


class WithMessage(Exception):
    """Has its text in a field, as some libraries do."""

    def __init__(self, message: str = "", code: int = 3) -> None:
        super().__init__(code)
        self.message = message


def ints(batch: torch.Tensor) -> list[int]:
    return [int(x) for x in batch[:, 0]]


@every_method
def test_an_exception_keeps_its_type_and_text(method: str) -> None:
    iterator = iter(loader(Failing(12, 7, LookupError("gone")), method, batch_size=2))
    assert [ints(next(iterator)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(LookupError, match="gone"):
        next(iterator)
    del iterator


@pytest.mark.parametrize("batch_size", [None, 1, 4, 10])
def test_an_exception_tells_worker_batch_index_and_traceback(batch_size: int | None) -> None:
    made = loader(Failing(30, 17), "fork", 1, batch_size=batch_size)
    with pytest.raises(ValueError, match="broken") as caught:
        list(made)
    text = str(caught.value)
    number = 17 // (batch_size or 1)
    assert text.startswith("Caught ValueError in DataLoader worker process 0")
    assert re.search(r"at sample index 17\b", text)
    assert re.search(rf"of batch {number}\b", text)
    assert "Original Traceback (most recent call last):" in text
    assert "in __getitem__" in text
    assert "raise self.error" in text


@pytest.mark.parametrize(
    "indices",
    [
        [[0, 1], {4, 7}, [2]],
        [[0, 1], (5, 7, 6), [2]],
        [[0, 1], range(6, 9), [2]],
        [[0, 1], torch.tensor([8, 7, 9]), [2]],
        [[0, 1], dict.fromkeys([8, 7, 9]), [2]],
        [[0, 1], iter([8, 7, 9]), [2]],
    ],
    ids=["set", "tuple", "range", "tensor", "dict", "iterator"],
)
def test_the_index_is_told_whatever_holds_the_indices(indices: list[Any]) -> None:
    iterator = iter(loader(FailingFrom(30, 7), "fork", 1, batch_sampler=indices))
    assert ints(next(iterator)) == [0, 1]
    with pytest.raises(ValueError, match="broken") as caught:
        next(iterator)
    assert re.search(r"at sample index \D*7\b", str(caught.value))
    assert ints(next(iterator)) == [2]
    del iterator


class FailingFrom(Failing):
    """Compares by value, so that a tensor as index fails too."""

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(int(index))


@pytest.mark.parametrize("drawing", [False, True])
def test_the_index_is_told_when_samples_draw_too(drawing: bool) -> None:
    def sample(index: int) -> torch.Tensor:
        if index == 17:
            raise ValueError("broken")
        return torch.rand(3) if drawing else torch.zeros(3)

    with pytest.raises(ValueError, match=r"at sample index 17 of batch 4\b"):
        list(loader(Tabled(30, sample), "fork", 1, batch_size=4))


def test_a_key_error_is_readable() -> None:
    def sample(index: int) -> int:
        return {"a": 1}["missing"] if index == 3 else index

    with pytest.raises(KeyError) as caught:
        list(loader(Tabled(5, sample), "fork"))
    assert "\nOriginal Traceback" in str(caught.value)
    assert "KeyError: 'missing'" in str(caught.value)


class ArgsFail(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise ZeroDivisionError


def test_an_exception_whose_arguments_cannot_be_read_costs_its_batch_only() -> None:
    def sample(index: int) -> int:
        if index == 1:
            raise ArgsFail("no")
        return index

    iterator = iter(loader(Tabled(3, sample), "fork"))
    assert next(iterator).tolist() == [0]
    with pytest.raises(ArgsFail) as caught:
        next(iterator)
    assert 'raise ArgsFail("no")' in str(caught.value)
    assert next(iterator).tolist() == [2]
    del iterator


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeedsTwo("a", "b"),
        lambda: FailsToBuild(error="no route to host"),
    ],
    ids=["two arguments", "fails to build"],
)
def test_an_exception_whose_constructor_wants_more_than_a_text_keeps_its_type(make: Any) -> None:
    def sample(index: int) -> int:
        if index == 1:
            raise make()
        return index

    iterator = iter(loader(Tabled(3, sample), "fork"))
    assert next(iterator).tolist() == [0]
    with pytest.raises(type(make())) as caught:
        next(iterator)
    assert caught.value.args == make().args
    told = str(caught.value.__cause__)
    assert "in DataLoader worker process" in told
    assert "at sample index 1 of batch 1" in told
    assert "raise make()" in told
    assert next(iterator).tolist() == [2]
    del iterator


def test_an_exception_with_its_text_in_a_field_is_built_again() -> None:
    def sample(index: int) -> int:
        raise WithMessage("no bucket")

    with pytest.raises(WithMessage) as caught:
        list(loader(Tabled(3, sample), "fork"))
    assert "no bucket" in caught.value.message or "WithMessage" in caught.value.message


def test_an_exception_whose_class_does_not_cross_is_a_runtime_error() -> None:
    class Local(Exception):
        pass

    def sample(index: int) -> int:
        if index == 1:
            raise Local("only known here")
        return index

    iterator = iter(loader(Tabled(3, sample), "fork"))
    assert next(iterator).tolist() == [0]
    with pytest.raises(RuntimeError, match="only known here"):
        next(iterator)
    assert next(iterator).tolist() == [2]
    del iterator


def test_a_sample_that_cannot_be_pickled_is_an_error() -> None:
    def sample(index: int) -> Any:
        return (lambda: index) if index == 1 else index

    iterator = iter(loader(Tabled(3, sample), "fork", batch_size=None, collate_fn=_as_it_is))
    assert next(iterator) == 0
    with pytest.raises(Exception, match="pickle") as caught:
        next(iterator)
    assert "in DataLoader worker process" in str(caught.value)
    assert "batch 1" in str(caught.value)
    assert next(iterator) == 2
    del iterator


def _as_it_is(sample: Any) -> Any:
    return sample


def test_a_large_sample_that_cannot_be_pickled_leaves_its_slot_usable() -> None:
    def sample(index: int) -> Any:
        image = torch.full((100, 100), float(index))
        return (image, lambda: 0) if index % 3 == 1 else (image, None)

    made = loader(Tabled(30, sample), "fork", batch_size=None, collate_fn=_as_it_is)
    iterator = iter(made)
    for index, answer in enumerate(answers(iterator)):
        if index % 3 == 1:
            assert "pickle" in str(answer)
        else:
            assert bool((answer[0] == index).all())
    assert index == 29
    del iterator, answer


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_a_stop_iteration_from_a_sample_is_not_the_end(method: str) -> None:
    iterator = iter(loader(Failing(6, 2, StopIteration("early")), method))
    assert [ints(next(iterator)) for _ in range(2)] == [[0], [1]]
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iterator)
    assert [ints(batch) for batch in iterator] == [[3], [4], [5]]


def test_a_stop_iteration_from_collate_is_not_the_end() -> None:
    def collate(samples: list[torch.Tensor]) -> Any:
        if int(samples[0][0]) == 2:
            raise StopIteration
        return torch.stack(samples)

    for method in ("inline", "fork"):
        iterator = iter(loader(Plain(6), method, collate_fn=collate))
        assert [ints(next(iterator)) for _ in range(2)] == [[0], [1]]
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(iterator)
        assert [ints(batch) for batch in iterator] == [[3], [4], [5]]


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_an_exception_in_collate_arrives(method: str) -> None:
    def collate(samples: list[torch.Tensor]) -> Any:
        if int(samples[0][0]) == 4:
            raise TypeError("cannot be collated")
        return torch.stack(samples)

    iterator = iter(loader(Plain(8), method, batch_size=2, collate_fn=collate))
    assert [ints(next(iterator)) for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(TypeError, match="cannot be collated") as caught:
        next(iterator)
    assert method == "inline" or "in collate_fn of batch 2" in str(caught.value)
    assert [ints(batch) for batch in iterator] == [[6, 7]]


@many_workers
@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_an_exception_in_the_sampler_is_raised_in_its_turn(num_workers: int, at: int) -> None:
    def indices() -> Iterator[int]:
        for index in range(8):
            if index == at:
                raise PermissionError("not this sample")
            yield index

    class Raising:
        def __iter__(self) -> Iterator[int]:
            return indices()

    method = "fork" if num_workers else "inline"
    iterator = iter(loader(Plain(8), method, num_workers, sampler=Raising()))
    assert [ints(next(iterator)) for _ in range(at)] == [[i] for i in range(at)]
    with pytest.raises(PermissionError, match="not this sample"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_indices_that_cannot_be_pickled_are_an_error_in_their_turn() -> None:
    batches = [[0], [lambda: 1], [2]]
    iterator = iter(loader(Plain(3), "fork", batch_sampler=batches))
    assert ints(next(iterator)) == [0]
    with pytest.raises(Exception, match=r"pickle|local object"):
        next(iterator)
    del iterator


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_iteration_goes_on_after_a_caught_exception(num_workers: int, persistent: bool) -> None:
    method = "fork" if num_workers else "inline"
    made = loader(Failing(30, 8), method, num_workers, batch_size=3, persistent_workers=persistent)
    for _ in range(2):
        iterator = iter(made)
        seen = list(answers(iterator))
        assert "sample 8 is broken" in str(seen.pop(2))
        assert [ints(batch) for batch in seen] == [
            [k, k + 1, k + 2] for k in range(0, 30, 3) if k != 6
        ]
    del made, iterator, seen


def test_every_sample_may_fail() -> None:
    def sample(index: int) -> int:
        raise ValueError(f"sample {index}")

    iterator = iter(loader(Tabled(20, sample), "fork"))
    for index in range(20):
        with pytest.raises(ValueError, match=rf"sample {index}\b"):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_the_end_is_found_after_errors_that_were_all_there() -> None:
    """Nothing was waited for, so nobody has asked the sampler whether there is more."""

    def sample(index: int) -> int:
        raise ValueError(f"sample {index}")

    iterator = iter(loader(Tabled(6, sample), "fork", 1, prefetch_factor=6))
    feed = iterator.feed
    while feed._dispatcher.running(0):
        feed._handle(feed._pool.wait(10))
    for index in range(6):
        with pytest.raises(ValueError, match=rf"sample {index}\b"):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_error_of_megabytes_arrives() -> None:
    def sample(index: int) -> int:
        raise ValueError("x" * 3_000_000)

    with pytest.raises(ValueError, match=r"x{100}"):
        list(loader(Tabled(4, sample), "fork"))
