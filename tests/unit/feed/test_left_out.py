"""Batches that are given up have their turn like others, and hold nobody up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule

from stoker.feed.dispatch import Dispatcher
from tests.unit.feed.test_dispatch import _assign_all
from tests.unit.feed.test_dying import Losses, workers

__all__ = ["TestLeavingOut"]


class LeavingOut(Losses):
    """Workers die, and what they are at may be given up before that."""

    @precondition(lambda self: self.shards is None)
    @rule(pick=workers)
    def give_up(self, pick: int) -> None:
        worker = self.worker(pick)
        if self.held[worker]:
            number = self.held[worker].pop(0)
            self.ready[number] = -1
            self.dispatcher.left_out(worker, number)
            self.die(pick)


LeavingOut.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestLeavingOut: Any = pytest.mark.timeout(60, method="thread")(LeavingOut.TestCase)


def test_a_batch_that_is_given_up_is_not_among_what_the_worker_holds() -> None:
    dispatcher = Dispatcher(2, 3, in_order=True, sharded=False)
    _assign_all(dispatcher, depth=3)
    dispatcher.left_out(0, 0)
    assert dispatcher.lost(0) == (2, 4)
    dispatcher.validate()
    assert dispatcher.deliverable() == 0
    dispatcher.delivered(0)
    assert dispatcher.deliverable() is None
