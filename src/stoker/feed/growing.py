"""What workers have told of their memory, until now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from stoker.workers.looks import Look

_MOST_LOOKS = 32


@dataclass
class History:
    """One worker's looks.

    Attributes:
        looks: The first, and as many of the later ones as are kept, oldest first.
        peak_bytes: The most private memory of any.
    """

    looks: list[Look] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, look: Look) -> None:
        """Another look."""
        self.peak_bytes = max(self.peak_bytes, look.private_bytes)
        if look.imported:  # It begins now.
            self.looks.clear()
        self.looks.append(look)
        if len(self.looks) > _MOST_LOOKS:  # What is left is still spread over all its time.
            del self.looks[1:-1:2]

    @property
    def grown_bytes(self) -> int:
        """How much more it has now than at the first look; negative where it has less."""
        return self.looks[-1].private_bytes - self.looks[0].private_bytes


class Growing:
    """See the module.

    Attributes:
        histories: By the worker's number; of one that has ended as long as none has its number.
        peak_bytes: The most private memory of all workers at once.
        heard: Called after each look.
        likely: What the growth likely comes from, and what changes it; empty as long as there is
            none that is worth a word.
    """

    def __init__(self) -> None:
        self.histories: dict[int, History] = {}
        self.peak_bytes = 0
        self.heard: Callable[[], object] | None = None
        self.likely: tuple[str, str] = ("", "")

    def of(self, worker: int, pid: int | None) -> History | None:
        """What a worker has told; None: nothing."""
        history = self.histories.get(worker)
        return history if history is not None and history.looks[-1].pid == pid else None

    def take(self, worker: int, look: Look, present: Collection[int]) -> None:
        """A worker has told.

        Args:
            worker: Its number.
            look: What.
            present: The numbers of the workers that there are.
        """
        history = self.histories.get(worker)
        if history is None or history.looks[-1].pid != look.pid:
            history = self.histories[worker] = History()
        history.add(look)
        for gone in self.histories.keys() - set(present):
            del self.histories[gone]
        now = sum(each.looks[-1].private_bytes for each in self.histories.values())
        self.peak_bytes = max(self.peak_bytes, now)
        if self.heard is not None:
            self.heard()
