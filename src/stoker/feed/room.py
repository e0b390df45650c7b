"""How much memory batches in flight may take, and what follows from it. Pure.

Batches lie in slots, and a slot is as large as the largest batch was. So a limit in bytes is a
limit on slots. Nobody knows how large a batch is before the first has come: where the user has
set the limit, there is one in flight until then; otherwise as many as `prefetch_factor` says.
"""

from __future__ import annotations

_RUN_AHEAD_BYTES = 256 * 1024 * 1024
_HELD, _HELD_UNDER_A_LIMIT = 64, 8
_AMPLE_SLOTS = 1024
_UNKNOWN = 1 << 30


class Room:
    """Memory for the batches of one loader.

    Args:
        limit_bytes: How many bytes they may take.
        source: Where that number comes from.
        strict: Whether the user has set it: then a single batch above it is an error, and
            only one is in flight before the size of a batch is known.
    """

    def __init__(self, limit_bytes: int, source: str, *, strict: bool) -> None:
        self.limit_bytes = limit_bytes
        self.source = source
        self.strict = strict
        self._largest_bytes = 0

    def set_limit(self, limit_bytes: int, source: str) -> None:
        """Another limit from now on."""
        self.limit_bytes, self.source = limit_bytes, source

    @property
    def batch_limit_bytes(self) -> int | None:
        """Above which size a batch is an error; None: there is no such size."""
        return self.limit_bytes if self.strict else None

    def learn(self, batch_bytes: int) -> None:
        """A batch, or its slot, takes this much."""
        self._largest_bytes = max(self._largest_bytes, batch_bytes)

    @property
    def slots(self) -> int:
        """How many batches of the largest size fit; at least 1."""
        return max(1, self.limit_bytes // max(1, self._largest_bytes))

    @property
    def is_scarce(self) -> bool:
        """Whether so few fit that every slot counts."""
        return self._largest_bytes > 0 and self.slots < _AMPLE_SLOTS

    @property
    def lent_limit(self) -> int:
        """How many slots the consumer may keep; further batches are copied out."""
        return self.slots // 2

    @property
    def run_ahead(self) -> int:
        """How many batches may be in flight while the consumer waits."""
        return min(self.limit_bytes, _RUN_AHEAD_BYTES) // max(1, self._largest_bytes)

    @property
    def run_ahead_of_each(self) -> int:
        """How many of those one worker may hold: fewer under a limit, since batches may grow."""
        return _HELD_UNDER_A_LIMIT if self.strict else _HELD

    @property
    def most_in_flight(self) -> int:
        """How many batches may be in flight whatever happens; at least 1."""
        if not self._largest_bytes:
            return 1 if self.strict else _UNKNOWN
        return self.slots
