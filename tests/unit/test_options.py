"""Arguments that torch's loader does not have."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker import DataLoader, options
from stoker.errors import ArgumentError, StokerError


@pytest.mark.parametrize(
    ("given", "size_bytes"),
    [
        (None, None),
        (1, 1),
        (10_000, 10_000),
        (np.int64(5), 5),
        ("1B", 1),
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("512 MiB", 512 * 2**20),
        ("  1.5 KiB ", 1536),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("0.5MB", 500_000),
    ],
)
def test_sizes(given: Any, size_bytes: int | None) -> None:
    assert options.memory_limit(given) == size_bytes


@pytest.mark.parametrize(
    "given", ["", "x", "4", "4G", "GB", "-1GB", "1e3MB", "4 GB more", "1,5GB", "0B", "0.2B", 0, -1]
)
def test_what_is_no_size_is_a_value_error_that_shows_it(given: Any) -> None:
    with pytest.raises(ArgumentError, match="memory_limit") as caught:
        options.memory_limit(given)
    assert isinstance(caught.value, ValueError)
    assert repr(given) in str(caught.value)
    assert caught.value.change.startswith("memory_limit='4GB' or")


@pytest.mark.parametrize("given", [True, False, 1.5, float("inf"), [], b"4GB"])
def test_what_is_no_number_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match="memory_limit"):
        options.memory_limit(given)


def test_a_size_beyond_all_numbers_is_no_other_error() -> None:
    with pytest.raises(ArgumentError):
        options.memory_limit("9" * 400 + "GB")


@pytest.mark.parametrize("given", ["raise", "retry", "skip"])
def test_what_may_be_done_on_a_time_out(given: str) -> None:
    assert options.on_timeout(given) == given


@pytest.mark.parametrize(
    ("given", "kind"), [("ignore", ValueError), ("", ValueError), (None, TypeError), (1, TypeError)]
)
def test_another_word_for_a_time_out_is_refused(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="on_timeout") as caught:
        options.on_timeout(given)
    assert repr(given) in str(caught.value)


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_an_argument_error(text: str) -> None:
    try:
        size_bytes = options.memory_limit(text)
    except ArgumentError:
        return
    assert isinstance(size_bytes, int)
    assert size_bytes > 0


def test_automatic_numbers_say_so_and_stay_so() -> None:
    begun = options.num_workers("auto")
    assert begun == 0
    assert repr(begun) == "0 (auto)"
    for again in (
        options.num_workers(begun),
        copy.deepcopy(begun),
        pickle.loads(pickle.dumps(options.AutoWorkers(3))),
    ):
        assert isinstance(again, options.AutoWorkers)
    assert not isinstance(options.num_workers(3), options.AutoWorkers)


@pytest.mark.parametrize("given", ["Auto", "3", ""])
def test_other_texts_are_no_number_of_workers(given: str) -> None:
    with pytest.raises(TypeError, match="num_workers"):
        options.num_workers(given)


@pytest.mark.parametrize("given", [0, 5, 2**64 - 1, np.uint64(7), None])
def test_seeds(given: Any) -> None:
    assert options.seed(given) == given
    assert options.seed(given) is None or type(options.seed(given)) is int


@pytest.mark.parametrize(
    ("given", "error"),
    [(-1, ArgumentError), (2**64, ArgumentError), (True, TypeError), (1.0, TypeError)],
)
def test_what_is_no_seed(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="seed"):
        options.seed(given)


def test_a_generator_and_a_seed_must_agree() -> None:
    mine = torch.Generator().manual_seed(3)
    assert options.own_generator(None, mine) is mine
    assert options.own_generator(3, mine) is mine
    made = options.own_generator(4, None)
    assert made is not None
    assert made.initial_seed() == 4
    with pytest.raises(ArgumentError, match="seed=4"):
        options.own_generator(4, mine)


def test_a_prefetch_of_nothing_says_what_to_do() -> None:
    assert "prefetch_factor=0" in str(options.prefetch_of_zero())


def _mend(index: Any, error: Exception) -> Any:
    return None


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("raise", None),
        ("skip", options.SKIP),
        ("replace", options.REPLACE),
        (_mend, _mend),
        (print, print),
    ],
)
def test_what_may_become_of_broken_samples(given: Any, policy: Any) -> None:
    assert options.on_error(given) is policy


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("ignore", ArgumentError),
        ("", ArgumentError),
        ("Skip", ArgumentError),
        (None, TypeError),
        (True, TypeError),
        (3, TypeError),
        (options.SKIP, TypeError),
        (["skip"], TypeError),
    ],
)
def test_what_may_not(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="on_error") as caught:
        options.on_error(given)
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize("given", [None, 0, 1, 10**9, np.int64(5), 0.5, 1e-9, np.float64(0.25)])
def test_how_many_may_be_broken(given: Any) -> None:
    most = options.max_errors(given, options.SKIP)
    assert most == given
    assert type(most) in (type(None), int, float)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (-1, ArgumentError),
        (0.0, ArgumentError),
        (1.0, ArgumentError),
        (3.0, ArgumentError),
        (-0.5, ArgumentError),
        (float("nan"), ArgumentError),
        (float("inf"), ArgumentError),
        (True, TypeError),
        ("3", TypeError),
        ([3], TypeError),
    ],
)
def test_what_is_no_bound(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_errors") as caught:
        options.max_errors(given, options.SKIP)
    assert repr(given) in str(caught.value)


def test_a_bound_for_nothing_is_refused() -> None:
    assert options.max_errors(None, None) is None
    with pytest.raises(ArgumentError, match="on_error='raise'") as caught:
        options.max_errors(3, None)
    assert "on_error='skip'" in caught.value.change


@given(st.text(max_size=8) | st.integers() | st.floats() | st.none() | st.booleans())
def test_any_value_is_taken_or_refused_by_name(value: Any) -> None:
    for check, name in [
        (options.on_error, "on_error"),
        (lambda given: options.max_errors(given, options.SKIP), "max_errors"),
    ]:
        refusal = name
        try:
            check(value)
        except (ArgumentError, TypeError) as error:
            refusal = str(error)
        assert name in refusal


@pytest.mark.parametrize("given", [1, 0, "1", [], 1.0])
def test_what_is_no_bool_is_no_debug(given: Any) -> None:
    with pytest.raises(TypeError, match="debug"):
        options.debug(given)


@pytest.mark.parametrize(
    ("variable", "given", "debugs"),
    [
        (None, None, False),
        ("1", None, True),
        ("yes", None, True),
        ("0", None, False),
        ("", None, False),
        ("off", None, False),
        ("1", False, False),
        ("0", True, True),
        (None, True, True),
    ],
)
def test_the_argument_overrules_the_variable(
    variable: str | None, given: bool | None, debugs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOKER_DEBUG", raising=False)
    if variable is not None:
        monkeypatch.setenv("STOKER_DEBUG", variable)
    assert options.debugs(options.debug(given)) == debugs


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": "x"},
        {"num_workers": 1.5},
        {"prefetch_factor": 1.5, "num_workers": 1},
        {"timeout": "3"},
        {"timeout": float("nan")},
        {"collate_fn": []},
        {"worker_init_fn": 1},
        {"sampler": 1},
        {"batch_sampler": 1},
        {"generator": 1},
        {"pin_memory_device": 1},
        {"batch_size": 2**70},
        {"drop_last": np.zeros(2)},
        {"memory_limit": "4G"},
        {"memory_limit": 0},
        {"memory_limit": 1.5},
        {"worker_method": 1},
        {"worker_method": "thread"},
        {"max_restarts": 1.5},
        {"max_restarts": -1},
        {"on_timeout": 1},
        {"on_timeout": "x"},
        {"on_error": "x"},
        {"on_error": 1},
        {"max_errors": "x", "on_error": "skip"},
        {"max_errors": 1.5, "on_error": "skip"},
        {"seed": "x"},
        {"seed": -1},
        {"debug": 1},
    ],
    ids=str,
)
def test_each_refusal_says_what_to_give(given: dict[str, Any]) -> None:
    with pytest.raises(StokerError) as caught:
        DataLoader([1], **given)
    assert caught.value.change.startswith(f"{next(iter(given))}=")
    assert not caught.value.change.endswith("=")
