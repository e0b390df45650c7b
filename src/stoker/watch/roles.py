"""What the parts of the watching engine want of each other, so that none imports its user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from stoker.tuning.result import LoaderFacts
from stoker.watch.leading import Leading
from stoker.watch.quick import Quick
from stoker.watch.settings import Settings

T = TypeVar("T")


class Epoch(Protocol):
    """What the program iterates; see `iterating.SiteIterator`."""

    number: int
    length: int | None
    served: int
    ended: bool
    quick: Quick
    _watched_loader: Any

    def alone(self) -> Any:
        """The next batch, unmeasured."""


class Owner(Protocol):
    """Who hands out the batches of an iterator; see `site.WatchedSite`."""

    @property
    def iterator(self) -> Any:
        """What is iterated underneath."""

    def next(self, iterator: Any) -> Any:
        """The next batch."""

    def passed(self, error: Exception, iterator: Any) -> bool:
        """Whether the program need not know of what came instead of a batch without a look."""

    def start(self, iterator: Any) -> None:
        """Starts workers where PyTorch would."""

    def abandoned(self, iterator: Any) -> None:
        """The program has let go of it."""

    def own_of(self, iterator: Any) -> Any:
        """The program's own iterator; None without one."""

    def open_own(self, loader: Any) -> Any:
        """Another one of these."""


class Line(Protocol):
    """A line of the program, as those see it who decide what it runs; see `site.WatchedSite`."""

    name: str
    in_epoch: bool
    cut_at: int | None
    loader_facts: LoaderFacts

    @property
    def total(self) -> int:
        """Batches handed out."""

    @property
    def touched_s(self) -> float:
        """When the last of them was."""

    @property
    def done(self) -> bool:
        """Whether its answer is found."""

    def counts_first(self) -> bool:
        """Whether the own setting has to stay."""

    def forbids(self, workers: int) -> str:
        """Why so many workers must not be tried."""


class Conducts(Protocol):
    """Who keeps the lines of a process together; see `conductor.Conductor`."""

    settings: Settings
    folder: str
    began_s: float
    off: bool
    elsewhere: tuple[float, int]
    leading: Leading | None
    open_iterator: Callable[[Any], Iterator[Any]]

    @property
    def seconds(self) -> float:
        """Since the first batch was asked for."""

    @property
    def passes_over(self) -> bool:
        """Whether single batches may go unseen."""

    def guarded(self, act: Callable[..., T], *given: Any) -> T | None:
        """Does something of Stoker's own."""

    def give_up(self, error: Exception, iterator: Any) -> Any:
        """Nothing is watched any more."""

    def fails(self, error: Exception) -> None:
        """Stoker itself has failed."""

    def measures(self, site: Any) -> bool:
        """Whether this line's settings may be tried now."""

    def check(self, site: Any) -> None:
        """Before each batch that is looked at."""

    def cuts(self, site: Any) -> bool:
        """Whether the rest of the epoch is left out."""

    def looks_at(self, site: Any) -> None:
        """This line is looked at."""

    def spent(self, seconds: float, batches: int = 1) -> None:
        """Batches were handed out."""

    def method_of(self, loader: Any) -> str:
        """How processes are started for a loader."""
