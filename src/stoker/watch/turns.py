"""Which loader is measured when, and when it is enough. It reads sites, and changes nothing there.

One loader at a time: another one that runs meanwhile keeps its own setting. Where a loader has
its answer and others have not had their turn, the rest of its epoch is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from stoker.watch.leaving import takes_an_end
from stoker.watch.roles import Line

IDLE_S = 2.0
"""A loader that was not asked for so long does not run beside the one that is."""
MOST_CUTS, MOST_CUTS_S = 12, 10.0
"""Epochs left out, one after the other, without another loader coming forward; and the time."""
EVERY, COMES_UP = "every loader has an answer", "every loader that comes up has an answer"


@dataclass
class _Cuts:
    """Epochs that were left out since another loader came forward."""

    count: int = 0
    since_s: float = 0.0
    progress: int = -1


class Turns:
    """See the module.

    Args:
        sites: All that were iterated.
        unseen: How many loaders were made that were not.
        clock: Gives seconds.
    """

    def __init__(
        self,
        sites: Callable[[], Collection[Line]],
        unseen: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._sites, self._unseen, self._clock = sites, unseen, clock
        self._measured: Line | None = None
        self._cuts = _Cuts()
        self._beside: set[int] = set()

    @property
    def measured(self) -> Line | None:
        """The one whose turn it is."""
        return self._measured

    def comes(self, site: Line) -> None:
        """The program asks a site for a batch."""
        now = self._measured
        if site.done or now is site:
            return
        if now is not None and not now.done and now.in_epoch:
            self._beside.add(id(site))  # it comes in the middle of the other's epochs
        if now is None or now.done or not now.in_epoch or self._rests(now):
            self._measured = site

    def _rests(self, site: Line) -> bool:
        """Whether its epoch was left in the middle: Lightning keeps the iterator of its check."""
        return self._clock() - site.touched_s > IDLE_S

    def cut(self, site: Line) -> bool:
        """Whether the rest of this epoch is to be left out; counted when it is."""
        if not (site.done and site.in_epoch and self._others_wait()):
            return False
        if not self._may_cut(site) or not takes_an_end():
            return False
        self._note_cut()
        return True

    def enough(self, site: Line) -> str:
        """Why all is measured that will be; empty where it is not."""
        if not site.done:
            return ""
        undone = any(not each.done for each in self._sites())
        if not undone and not self._unseen():
            return EVERY
        waits = site.in_epoch and self._others_wait()
        if not waits or site.cut_at is not None or self._may_cut(site) or self._comes_beside():
            return ""
        return COMES_UP if undone else EVERY

    def _may_cut(self, site: Line) -> bool:
        if site.cut_at is not None or self._comes_beside():
            return False
        cuts, now = self._cuts, self._clock()
        if self._progress() != cuts.progress or not cuts.count:
            return True
        return cuts.count < MOST_CUTS and now - cuts.since_s < MOST_CUTS_S

    def _note_cut(self) -> None:
        cuts, progress = self._cuts, self._progress()
        if progress != cuts.progress:
            cuts.count, cuts.since_s, cuts.progress = 0, self._clock(), progress
        cuts.count += 1

    def _others_wait(self) -> bool:
        """Whether there are loaders without an answer, and none of them runs now."""
        now = self._clock()
        undone = [each for each in self._sites() if not each.done]
        if any(each.in_epoch and now - each.touched_s <= IDLE_S for each in undone):
            return False
        return bool(undone or self._unseen())

    def _comes_beside(self) -> bool:
        """Whether one without an answer comes up within the epochs of others: it will again."""
        return any(not each.done and id(each) in self._beside for each in self._sites())

    def _progress(self) -> int:
        """Grows as loaders without an answer come forward."""
        sites = self._sites()
        return sum(each.total for each in sites if not each.done) + len(sites)
