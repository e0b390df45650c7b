"""What the program iterates in place of PyTorch's iterator, and how it goes on unmeasured.

watched ──▶ alone      another iterator of the line has begun since, or Stoker has failed,
                       or the process is a copy: the program's own loader, nothing more
"""

from __future__ import annotations

import sys
from time import perf_counter
from types import FrameType
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from stoker.watch.quick import Quick
from stoker.watch.roles import Owner


class SiteIterator(_BaseDataLoaderIter):
    """Looks like PyTorch's iterator.

    Attributes:
        length: Batches of an epoch, as far as is known; what is put together of several
            settings ends after as many.
        served: Batches handed out.
        ended: Whether the epoch is over.
        number: Of the site's iterators; only the last one is measured.
        quick: Batches that are handed out without a look.
    """

    def __init__(
        self, owner: Owner, loader: Any, number: int, length: int | None, quick: Quick
    ) -> None:
        self._owner, self._watched_loader, self.quick = owner, loader, quick
        self.number, self.length = number, length
        self.served = 0
        self.ended = False
        self._plain: Any = None
        self._counted = False
        self._since = 0

    def __iter__(self) -> SiteIterator:
        return self

    def __next__(self) -> Any:
        quick, began = self.quick, perf_counter()
        if began < quick.until_s:
            with quick.lock:
                take, load = quick.take, quick.load  # first: `end` comes before it forgets them
                if quick.until_s and quick.left:
                    load.since_s = began
                    load.on = True
                    try:
                        batch = take()
                    except Exception as error:
                        if not self._owner.passed(error, self):
                            raise
                    else:
                        end = perf_counter()
                        load.before_s += end - began
                        quick.left -= 1
                        quick.times += (began, end)
                        self.served += 1
                        return batch
                    finally:
                        load.on = False
        return self._owner.next(self)

    def __len__(self) -> int:
        return len(self._watched_loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_owner", "_plain"):
            raise AttributeError(name)
        plain = self._plain
        return getattr(plain if plain is not None else self._owner.iterator, name)

    def __del__(self) -> None:
        owner = vars(self).get("_owner")
        if owner is not None and not self.ended:
            owner.abandoned(self)

    def start(self) -> None:
        """Starts workers where PyTorch would.

        Raises:
            Exception: What the user's code raised.
        """
        self._owner.start(self)

    def go_on_with(self, iterator: Any) -> None:
        """From now on this is iterated, which stands where this epoch does."""
        self._plain = iterator

    def alone(self) -> Any:
        """The next batch of the program's own loader, with nothing measured.

        Raises:
            StopIteration: The epoch is over.
            Exception: What the user's code raised.
        """
        if self.ended:
            raise StopIteration
        if self._plain is None:
            self._plain = self._owner.own_of(self)
        if self._plain is None:
            self._plain, self._counted, self._since = self._open(), self.served > 0, self.served
        while True:
            if self._counted and self.length is not None and self.served >= self.length:
                self.ended = True
                raise StopIteration
            try:
                batch = next(self._plain)
            except StopIteration:
                if not self._counted or self.length is None or self.served == self._since:
                    self.ended = True
                    raise
                self._plain, self._since = self._open(), self.served
                continue
            self.served += 1
            return batch

    def _open(self) -> Any:
        return self._owner.open_own(self._watched_loader)


def served_here() -> Any:
    """The loader whose next batch this thread is just being given; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is SiteIterator.__next__.__code__:
            return frame.f_locals["self"]._watched_loader
        frame = frame.f_back
    return None
