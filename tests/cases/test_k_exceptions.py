"""Public cases of group K that the engine answers."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import default_collate

import stoker
from stoker.errors import TooManyErrors
from tests.contract.methods import Tabled, loader
from tests.datasets import Failing


class _ClientError(Exception):
    """Raises KeyError while it is built from one message."""

    def __init__(self, *args: object, **fields: str) -> None:
        super().__init__("failed: {error}".format(**fields))


class _TwoArguments(Exception):
    def __init__(self, tracker: str, tracker_grad_orig: str) -> None:
        super().__init__(f"{tracker} {tracker_grad_orig}")


def test_c104_an_exception_that_fails_to_be_rebuilt_is_not_lost() -> None:
    """Whatever its constructor raises, its type, text and traceback arrive."""

    def sample(index: int) -> int:
        raise _ClientError(error="no route to host")

    with pytest.raises(_ClientError, match="failed: no route to host") as caught:
        list(loader(Tabled(3, sample), "fork"))
    assert "raise _ClientError" in str(caught.value.__cause__)


def test_c106_an_exception_with_two_arguments_is_not_lost() -> None:
    """Its type, text and traceback arrive."""

    def sample(index: int) -> int:
        raise _TwoArguments("tracker", "gradient")

    with pytest.raises(_TwoArguments, match="tracker gradient") as caught:
        list(loader(Tabled(3, sample), "fork"))
    assert "raise _TwoArguments" in str(caught.value.__cause__)


def test_c109_an_error_carries_the_sample() -> None:
    """The index of the sample, so that it can be looked at alone."""

    def sample(index: int) -> int:
        if index == 41:
            raise OSError("cannot identify image file")
        return index

    with pytest.raises(OSError, match="at sample index 41 "):
        list(loader(Tabled(64, sample), "fork", batch_size=8))


def read_by(on_error: Any, method: str = "fork", **options: Any) -> tuple[list[list[int]], Any]:
    """The indices in each batch of 1,000 items of which item 17 is damaged; and what is told."""
    made = loader(Failing(1000, 17), method, batch_size=8, on_error=on_error, seed=3, **options)
    batches = [batch[:, 0].int().tolist() for batch in made]
    return batches, made.statistics()


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_c107_one_damaged_image_does_not_end_the_run(method: str) -> None:
    """It is left out of its batch, counted and listed."""
    batches, told = read_by("skip", method)
    assert [index for batch in batches for index in batch] == [*range(17), *range(18, 1000)]
    assert {len(batch) for batch in batches} == {7, 8}
    assert (told.broken_samples, told.skipped_samples) == (1, 1)
    [bad] = told.errors
    assert (bad.index, bad.batch, bad.error) == (17, 2, "ValueError: sample 17 is broken")


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_c107_or_another_takes_its_place(method: str) -> None:
    """Drawn by the seed, and not the next one: that would be there twice in every batch."""
    batches, told = read_by("replace", method)
    assert [len(batch) for batch in batches] == [8] * 125
    other = batches[2][1]
    assert batches[2] == [16, other, *range(18, 24)]
    assert other not in (17, 18)
    assert batches == read_by("replace", "inline")[0]
    assert [(bad.index, bad.outcome) for bad in told.errors] == [(17, "replaced")]


def test_c107_there_is_a_maximum_rate() -> None:
    def sample(index: int) -> int:
        if index % 10 == 3:
            raise OSError("truncated")
        return index

    made = loader(Tabled(1000, sample), "fork", batch_size=8, on_error="skip", max_errors=0.05)
    with pytest.raises(TooManyErrors, match=r"51 samples.*max_errors=0.05") as caught:
        list(made)
    assert "OSError: truncated" in str(caught.value)
    assert made.statistics().broken_samples == 51


def test_c107_none_may_still_be_filtered_by_collate() -> None:
    """As people do it today; a sample that raises may be made such a None."""

    def collate(samples: list[Any]) -> Any:
        return default_collate([sample for sample in samples if sample is not None])

    batches, told = read_by(lambda index, error: None, collate_fn=collate)
    assert sum(map(len, batches)) == 999
    assert [(bad.index, bad.outcome) for bad in told.errors] == [(17, "given")]


def test_c109_a_short_read_may_be_tried_again() -> None:
    """Damaged at random with many workers: the policy reads the same sample once more."""

    class Flaky(Failing):
        """The first reading of every tenth sample is short, in each process."""

        def __init__(self) -> None:
            super().__init__(100, -1)
            self.seen: set[int] = set()

        def __getitem__(self, index: int) -> Any:
            if index % 10 == 0 and index not in self.seen:
                self.seen.add(index)
                raise OSError("image file is truncated")
            return super().__getitem__(index)

    dataset = Flaky()

    def once_more(index: int, error: Exception) -> Any:
        return dataset[index] if isinstance(error, OSError) else stoker.SKIP

    made = loader(dataset, "fork", 2, batch_size=4, on_error=once_more)
    assert [int(x) for batch in made for x in batch[:, 0]] == list(range(100))
    told = made.statistics()
    assert [bad.index for bad in told.errors] == list(range(0, 100, 10))
    assert {bad.outcome for bad in told.errors} == {"given"}
