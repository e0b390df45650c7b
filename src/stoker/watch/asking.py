"""Which setting a site runs at which batch: the same in all processes of the program."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from stoker.feed.window import Window
from stoker.tuning.decision import Bounds
from stoker.tuning.probing import Ask, Prober, Setting
from stoker.tuning.result import Failure
from stoker.tuning.wording import workers as workers_of
from stoker.watch.leading import AHEAD
from stoker.watch.roles import Conducts, Line

_MOST_FAILURES = 50


class Asking:
    """What is asked of one site.

    Args:
        site: The site.
        own: The program's own number of workers.
        conductor: Of this process.

    Attributes:
        prober: Says what to measure next.
        failures: What went wrong with other settings than the own.
        due: Whether the next setting has been named already.
    """

    def __init__(self, site: Line, own: int, conductor: Conducts) -> None:
        self.prober = Prober(own, counts=conductor.settings.counts)
        self.failures: list[Failure] = []
        self._site, self._conductor = site, conductor
        self._own = Ask("own", Setting(own), 10**9, 1e9)
        self._now: Ask | None = None
        self._due: tuple[int, Ask] | None = None
        self._bad: set[Setting] = set()
        self._next = self.prober.ask
        self._since_s = perf_counter()

    @property
    def done(self) -> bool:
        """Whether the answer is found."""
        return self._next.stage == "done"

    def observe(self, window: Window, bounds: Bounds) -> Ask:
        """Takes the window that was asked for; what is to be measured next."""
        now = perf_counter()
        self.prober.observe(window, bounds, now - self._since_s)
        self._since_s = now
        self._next = self.prober.ask
        return self._next

    def stop(self) -> None:
        """There is no time for more."""
        self.prober.stop()
        self._next = self.prober.ask

    @property
    def due(self) -> bool:
        """See the class."""
        return self._due is not None

    def now(self) -> Ask:
        """What runs at this batch."""
        leading, site = self._conductor.leading, self._site
        if leading is None or not leading.leads:
            told = leading.ask_for(site.name, site.total) if leading else None
            return self._unless_bad(told or self._own)
        wanted = self._own
        if self._conductor.measures(site):
            wanted = self._wanted()
        else:
            self._since_s = perf_counter()  # its time is not spent while others have their turn
        if self._now is None or _alike(wanted, self._now) or not leading.together:
            if self._now is None or not _alike(wanted, self._now):
                leading.asks(site.name, site.total, wanted)
            self._now, self._due = wanted, None
        elif self._due is None:
            self._due = site.total + AHEAD, wanted
            leading.asks(site.name, site.total + AHEAD, wanted)
        elif site.total >= self._due[0]:
            self._now, self._due = self._due[1], None
        return self._unless_bad(self._now)

    def told(self) -> dict[str, Any]:
        """Fields of a `SiteRecord`."""
        prober = self.prober
        return {
            "own": self._own.setting.workers,
            "chosen": prober.chosen,
            "certain": self.done and not prober.gave_up,
            "reason": prober.reason,
            "rare": prober.rare,
            "stage": prober.stage,
            "failures": self.failures,
        }

    def is_plain(self, ask: Ask) -> bool:
        """Whether it is the program's own setting, so that its loader is used as it is."""
        if ask.setting != self._own.setting:
            return False
        return not self._site.loader_facts.automatic or ask.setting in self._bad

    def failed(self, setting: Setting, what: str) -> None:
        """A setting that was tried does not work: the program must not notice."""
        self._bad.add(setting)
        self.tell(
            Failure(
                kind="raised",
                num_workers=setting.workers,
                what=what,
                doing=f"trying {workers_of(setting.workers)} in the running program",
            )
        )
        if setting == self._next.setting and not self.done:
            self.prober.failed(setting.workers, "an error of the loader")
            self._next = self.prober.ask

    def tell(self, failure: Failure) -> None:
        """For the report."""
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(failure)

    def _wanted(self) -> Ask:
        """What is measured next; numbers that would change what the program reads are left out."""
        wanted = self._next
        if wanted.setting != self._own.setting and self._site.counts_first():
            return self._own
        while wanted.stage in ("search", "confirm") and wanted.setting != self._own.setting:
            why = self._site.forbids(wanted.setting.workers)
            if not why:
                break
            self.failed(wanted.setting, why)
            if self._next == wanted:
                self.stop()
            wanted = self._next
        return wanted

    def _unless_bad(self, ask: Ask) -> Ask:
        if ask.setting not in self._bad or self.is_plain(ask):
            return ask
        return replace(ask, setting=self._own.setting)


def _alike(one: Ask, other: Ask) -> bool:
    """Whether two asks want the same to run."""
    same = one.stage == other.stage or not one.fresh
    return same and one.setting == other.setting and one.round == other.round
