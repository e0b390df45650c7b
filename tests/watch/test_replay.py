"""Batches that are handed out again: as they were made, whatever the consumer does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

from stoker.watch import kept
from stoker.watch.kept import KEPT, Kept, copy_of
from tests.datasets import Plain
from tests.watch.watching import scripted, watched


def taken_apart(samples: list[torch.Tensor]) -> dict[str, Any]:
    return {
        "numbers": torch.stack(samples),
        "label": torch.ones(len(samples)),
        "names": ["one", "two"],
        "more": {"array": np.zeros(2), "pair": (torch.zeros(1), [1, 2])},
    }


def test_a_consumer_may_take_batches_apart(tmp_path: Path) -> None:
    with scripted(("own", 0, 2), ("replay", 0, 40)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(80), batch_size=2, collate_fn=taken_apart)
        for _ in range(4):
            for batch in loader:
                label = batch.pop("label")
                assert label.tolist() == [1.0, 1.0]
                label -= 5
                assert batch["names"].pop() == "two"
                batch["more"]["pair"][1].clear()
                assert not batch["more"]["array"].any()
                batch["more"]["array"] += 1
        assert watch.site.done
        (replay,) = [each for each in watch.site.record(whole=False).seen if each.stage == "replay"]
        assert replay.window.batches >= 40


class Pair(NamedTuple):
    """A batch of two."""

    left: torch.Tensor
    right: list[int]


class NotCopied:
    """A batch that refuses to be copied."""

    def __deepcopy__(self, memory: Any) -> Any:
        raise TypeError("only one of them")


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    batch = Pair(torch.zeros(2), [1])
    again = copy_of(batch)
    assert type(again) is Pair
    again.left.add_(1)
    again.right.append(2)
    assert batch.left.tolist() == [0.0, 0.0]
    assert batch.right == [1]


def test_what_can_not_be_copied_is_handed_out() -> None:
    batch = [NotCopied(), torch.zeros(1)]
    assert copy_of(batch) is batch


def test_few_batches_are_kept_and_one_where_they_are_large(monkeypatch: Any) -> None:
    few = Kept()
    for number in range(10):
        few.keep(torch.tensor([number]), 8)
    assert {int(few.again()) for _ in range(10)} == set(range(KEPT))
    monkeypatch.setattr(kept, "KEPT_BYTES", 1000)
    one = Kept()
    one.keep(torch.zeros(100), 400)
    assert one.full
    assert one.again() is not one.again()
    huge = Kept()
    huge.keep(torch.zeros(1000), 4000)
    assert huge.again() is huge.again()  # a copy would need as much memory again
