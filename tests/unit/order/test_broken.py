"""What is told of a sample that could not be read."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest
import torch

from stoker.order.broken import Damage, broken, is_exhaustion, known_as


class _Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class _Odd:
    def __repr__(self) -> str:
        raise KeyError("no repr")


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_type_text_and_place_are_told() -> None:
    told = broken(17, raised(OSError("cannot identify image")), "skipped")
    assert (told.index, told.error) == (17, "OSError: cannot identify image")
    assert "test_broken.py:" in told.where
    assert told.where.endswith(", in raised")
    assert told.outcome == "skipped"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (_Mute(), "_Mute: (its text cannot be had)"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_odd_errors_are_told_too(error: Exception, text: str) -> None:
    assert broken(0, error, "given").error == text
    assert broken(0, error, "given").where == ""


def test_a_long_text_is_cut() -> None:
    assert len(broken("x" * 10**6, raised(ValueError("y" * 10**6)), "given").error) < 400
    assert len(str(known_as("x" * 10**6))) < 400


@pytest.mark.parametrize(
    ("index", "known"),
    [
        (3, 3),
        (np.int64(3), 3),
        (torch.tensor(3), 3),
        ("a.jpg", "a.jpg"),
        ((1, "b"), "(1, 'b')"),
        (torch.tensor([1, 2]), "tensor([1, 2])"),
        (None, "None"),
        (_Odd(), "a _Odd"),
    ],
)
def test_indices_are_told_as_integers_or_text(index: Any, known: int | str) -> None:
    assert known_as(index) == known
    assert type(known_as(index)) is type(known)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (OSError(errno.EMFILE, "too many open files"), True),
        (OSError(errno.ENOSPC, "full"), True),
        (FileNotFoundError(errno.ENOENT, "none"), False),
        (OSError("cannot identify image"), False),
        (RuntimeError("out of memory"), False),
    ],
)
def test_what_blames_the_process(error: Exception, is_one: bool) -> None:
    assert is_exhaustion(error) == is_one


def test_a_batch_is_wholly_broken_where_every_place_may_be() -> None:
    one = broken(0, ValueError(), "skipped")
    assert not Damage(2, (one,)).is_whole
    assert Damage(2, (one, one)).is_whole
