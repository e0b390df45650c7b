"""Public cases of group K that the engine answers."""

from __future__ import annotations

import pytest

from tests.contract.methods import Tabled, loader


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
