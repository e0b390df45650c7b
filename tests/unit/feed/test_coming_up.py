"""Whether a consumer waits because a worker has not come up."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.feed.crew import Crew, Crewman
from stoker.feed.dispatch import Dispatcher
from stoker.feed.meter import Meter
from stoker.workers.messages import Started


class Pool:
    """Stands for a `ProcessPool` in which nobody is busy, nor ends."""

    def busy(self, worker: int) -> bool:
        return True


def crew_of(workers: int, *, in_order: bool = True) -> tuple[Crew, Dispatcher]:
    pool: Any = Pool()
    crew = Crew(pool, None, Meter(), patient=False)
    crew.men = {worker: Crewman() for worker in range(workers)}
    dispatcher = Dispatcher(0, 2, in_order=in_order, sharded=False)
    crew.serve(dispatcher)
    for worker in crew.men:
        dispatcher.assigned(worker, worker)
    return crew, dispatcher


def test_nobody_has_come_up() -> None:
    assert crew_of(2)[0].is_still_to_come_up


def test_the_one_whose_turn_it_is_has_not() -> None:
    crew, _ = crew_of(2)
    crew.came_up(1, Started(None))
    assert crew.is_still_to_come_up
    crew.came_up(0, Started(None))
    assert not crew.is_still_to_come_up


@pytest.mark.parametrize("in_order", [False, True])
def test_who_is_awaited_has(in_order: bool) -> None:
    crew, _ = crew_of(2, in_order=in_order)
    crew.came_up(0, Started(None))
    assert not crew.is_still_to_come_up


def test_nobody_is_there() -> None:
    assert not crew_of(0)[0].is_still_to_come_up
