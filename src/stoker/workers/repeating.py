"""How a worker gets to where a dead one was in an iterable data set: by making it all again.

The iterator is run from its start under the same seeds, one batch at a time and for nobody, and
a checksum is held against that of what the dead worker had sent.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from stoker.workers.digest import RunningDigest
from stoker.workers.making import Ended, IterableMaker
from stoker.workers.messages import Repeat

_TELL_S = 0.1


def repeat(
    maker: IterableMaker, digest: RunningDigest, message: Repeat, tell: Callable[[int], None]
) -> str:
    """Makes the batches that `message` asks for.

    Args:
        maker: At the start of the epoch.
        digest: Empty; goes on from here afterwards.
        message: How many, and what they came to.
        tell: Called with how many there are, several times a second.

    Returns:
        Empty where they are the same again; else what differs, as a clause.
    """
    tell_at = perf_counter() + _TELL_S
    for step in range(message.steps):
        try:
            digest.add(maker.make(message.task))
        except Ended:
            return f"it ended after {step} batches, and had yielded {message.steps} before"
        except BaseException as error:  # As it was then: see `job`.
            digest.add_error(error)
        if perf_counter() >= tell_at:
            tell(step + 1)
            tell_at = perf_counter() + _TELL_S
    if digest.value != message.digest:
        return f"its first {message.steps} batches are not what they were before"
    return ""
