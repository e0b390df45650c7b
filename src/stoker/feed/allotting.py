"""How many batches each worker may hold where memory is scarce."""

from __future__ import annotations

from collections.abc import Callable

from stoker.feed.dispatch import Dispatcher
from stoker.workers.process import ProcessPool


def allotted(
    depths: dict[int, int],
    dispatcher: Dispatcher,
    pool: ProcessPool,
    slots: int,
    empty_slots: Callable[[], None],
) -> dict[int, int]:
    """How many batches each worker may hold so that no more slots are made than fit.

    Args:
        depths: How many each may hold as far as memory does not matter.
        dispatcher: Which worker holds what.
        pool: The workers.
        slots: How many fit.
        empty_slots: Gives back slots that hold nothing.
    """
    more = pool.slot_count + pool.slots_to_come < slots
    if not more and dispatcher.is_still:
        turn = dispatcher.whose_turn()
        if not any(pool.free_slots(worker) for worker in (depths if turn is None else [turn])):
            # What others have is given back, and one batch at a time goes on in any case.
            empty_slots()
            more = True
    return {
        worker: min(depth, len(dispatcher.running(worker)) + max(more, pool.free_slots(worker)))
        for worker, depth in depths.items()
    }
