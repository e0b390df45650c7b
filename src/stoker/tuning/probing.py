"""Which setting of a loader to measure next, in a program that runs. Pure.

    own ──▶ search ──▶ confirm ──▶ extras ──▶ replay ──▶ done
                        (paired)

First the program's own setting. Then the search of `Controller`, which begins with the closed
form. What it finds is then measured in turn with its rivals, round by round, so that a machine
that becomes slower does so for all of them. Settings other than the number follow where they
could matter, and at the end batches that are ready, which no loader setting can beat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stoker.feed.window import Window
from stoker.tuning.controller import Controller
from stoker.tuning.decision import Bounds
from stoker.tuning.noise import doubt
from stoker.tuning.visits import Visit, measurable

Stage = Literal["own", "search", "confirm", "extras", "replay", "done"]

OWN_WINDOWS, OWN_S, MOST_OWN_WINDOWS, OWN_BATCHES = 2, 0.5, 8, 4
"""Windows and seconds of the program's own setting before anything is changed, and batches in
one of them."""
SLOW_S = 0.25
"""A batch that takes longer is a window by itself."""
SEARCH_WINDOWS = 60
"""Windows after which the search ends with the best so far."""
SEARCH_PATIENCE = 4
"""Windows after which a rate is known well enough to go on: what comes close is compared in pairs
afterwards."""
RIVAL = 0.9
"""Measured rates from this share of the best on are compared in pairs."""
MOST_RIVALS = 3
FEWEST_ROUNDS, MOST_ROUNDS = 2, 6
ROUND_S, ROUND_BATCHES = 0.4, 8
REPLAY_S, REPLAY_BATCHES = 0.25, 8
REPLAYS = 2
IDLE = 0.88
"""Share of their time that workers must be busy for fewer of them to give that much less."""
SAME = 0.02
"""Rates that differ by less are the same, and fewer workers win."""
NOTABLE = 0.05
HANDLING = 0.35
"""Share of the time that the main process spends on receiving batches, from which on another
way of bringing them is worth a try."""
ORDER = 0.2
"""Share of the time in which a later batch was ready, from which on more in advance may help."""


@dataclass(frozen=True)
class Setting:
    """A way to run the loader.

    Attributes:
        workers: Its number of workers.
        engine: "torch", or "stoker" for Stoker's loader with as many workers.
        prefetch_factor: Batches in advance for each worker; None for the loader's own.
    """

    workers: int
    engine: Literal["torch", "stoker"] = "torch"
    prefetch_factor: int | None = None


@dataclass(frozen=True)
class Ask:
    """What to measure next.

    Attributes:
        stage: Why: see the module.
        setting: How the loader is to run.
        batches: Batches that the window needs at least.
        seconds: Seconds that it needs at least.
        round: Settings measured in one round are compared as pairs.
        fresh: Whether workers that run already with this setting must be started anew.
    """

    stage: Stage
    setting: Setting
    batches: int
    seconds: float
    round: int = 0
    fresh: bool = False


@dataclass(frozen=True)
class Trial:
    """A window, and what it was measured for."""

    setting: Setting
    stage: Stage
    round: int
    window: Window


class Prober:
    """Names what to measure until the answer for one loader is certain.

    Args:
        own: The program's own setting.
        counts: Exactly these numbers of workers are measured, in rounds; None to search.
        most: The most workers that may be tried at all.
        extras: Whether settings other than the number may be tried.
    """

    def __init__(
        self,
        own: int,
        *,
        counts: Sequence[int] | None = None,
        most: int | None = None,
        extras: bool = True,
    ) -> None:
        self.own = own
        self.trials: list[Trial] = []
        self.reason = ""
        self.gave_up = False
        self._most, self._extras = most, extras
        self._counts = sorted(set(counts)) if counts is not None else None
        self._controller = Controller(SEARCH_PATIENCE)
        self._stage: Stage = "own"
        self._here = own
        self._round = 0
        self._queue: list[Setting] = []
        self._failed: set[int] = set()
        self._searched = 0

    @property
    def stage(self) -> Stage:
        """Where it stands."""
        return self._stage

    @property
    def ask(self) -> Ask:
        """What to measure now."""
        if self._stage == "own":
            batches = max(OWN_BATCHES, 2 * self.own)
            slow = self.trials and self.trials[-1].window.service_s > SLOW_S and not self.own
            return Ask("own", Setting(self.own), 1 if slow else batches, OWN_S / OWN_WINDOWS / 2)
        if self._stage == "search":
            batches, seconds = self._controller.wanted
            return Ask("search", Setting(self._here), batches, seconds)
        if self._stage in ("confirm", "extras"):
            setting = self._queue[0]
            batches = max(ROUND_BATCHES, 3 * setting.workers)
            return Ask(self._stage, setting, batches, ROUND_S, self._round, fresh=True)
        if self._stage == "replay":
            return Ask("replay", Setting(self.chosen), REPLAY_BATCHES, REPLAY_S)
        return Ask("done", Setting(self.chosen), 0, 0.0)

    def observe(self, window: Window, bounds: Bounds) -> None:
        """Takes the window that was asked for.

        Args:
            window: A clean stretch with the setting asked for.
            bounds: What may be used now.
        """
        ask = self.ask
        if ask.stage == "done" or (not measurable(window) and ask.stage != "replay"):
            return
        self.trials.append(Trial(ask.setting, ask.stage, ask.round, window))
        step = {
            "own": self._own,
            "search": self._search,
            "confirm": self._confirm,
            "extras": self._extra,
            "replay": self._replay,
        }[ask.stage]
        step(window, bounds)

    def failed(self, workers: int, why: str) -> None:
        """A trial with so many workers failed: it is not tried again."""
        self._failed.add(workers)
        self._queue = [each for each in self._queue if each.workers != workers]
        if self._stage in ("own", "search"):
            below = [n for n in self._visits() if n < workers]
            if workers == 0 or not below:
                self._finish(gave_up=True)
                return
            self._controller.cannot_exceed(max(below), why)
            self._here = max(below)
        elif self._stage in ("confirm", "extras") and not self._queue:
            self._next_round()

    def stop(self) -> None:
        """There is no time for more: what was measured has to do."""
        if self._stage != "done":
            self._finish(gave_up=True)

    @property
    def chosen(self) -> int:
        """The number that is best as far as is known."""
        rivals = [n for n in self._paired() if n not in self._failed]
        if rivals:
            return self._fewest_of(rivals)
        rates = self._rates()
        if not rates:
            return self.own
        best = max(rates.values())
        return min(n for n, rate in rates.items() if rate >= (1 - SAME) * best)

    def rivals(self) -> list[int]:
        """The numbers that were compared in pairs."""
        return sorted(self._paired())

    def _own(self, window: Window, bounds: Bounds) -> None:
        windows = [trial.window for trial in self.trials]
        seconds = sum(each.seconds for each in windows)
        if len(windows) < OWN_WINDOWS or (seconds < OWN_S and len(windows) < MOST_OWN_WINDOWS):
            return
        if self._counts is not None:
            self._stage, self._round = "confirm", 0
            self._queue = [Setting(n) for n in self._counts]
            return
        self._stage = "search"
        self._controller.changed(self.own)
        for each in windows:
            self._follow(each, bounds)
            if self._here != self.own:
                return
        self._end_search_if_settled(bounds)

    def _search(self, window: Window, bounds: Bounds) -> None:
        self._searched += 1
        self._follow(window, bounds)
        self._end_search_if_settled(bounds)

    def _follow(self, window: Window, bounds: Bounds) -> None:
        decision = self._controller.observe(window, bounds)
        if decision is not None:
            self._here = decision.workers
            self.reason = decision.reason

    def _end_search_if_settled(self, bounds: Bounds) -> None:
        if not self._controller.settled and self._searched < SEARCH_WINDOWS:
            return
        self._queue = [Setting(n) for n in self._who_is_compared(bounds)]
        self._stage, self._round = "confirm", 0
        if len(self._queue) < 2:
            self._queue = []
            self._begin_extras()

    def _who_is_compared(self, bounds: Bounds) -> list[int]:
        """What was found, what came near it, and one fewer where that might do."""
        rates = self._rates()
        best = max(rates.values())
        found = min(n for n, rate in rates.items() if rate >= (1 - SAME) * best)
        if self._here in rates and rates[self._here] >= RIVAL * best:
            found = self._here
        near = [n for n, rate in rates.items() if rate >= RIVAL * best and n != found]
        fewer = self._one_fewer(found, rates, bounds)
        near.sort(key=lambda n: (n > found, abs(n - found)))
        rivals = [found, *([fewer] if fewer is not None else []), *near]
        return sorted(list(dict.fromkeys(rivals))[:MOST_RIVALS])

    def _one_fewer(self, found: int, rates: dict[int, float], bounds: Bounds) -> int | None:
        """The next number below that was not measured and might give as much."""
        if found <= bounds.least:
            return None
        fewer = found - 1 if found <= 8 else round(0.87 * found)
        if fewer in rates or fewer in self._failed or (fewer == 0 and bounds.least):
            return None
        visit = self._visits()[found]
        loses = fewer / found < 1 - NOTABLE and visit.busy >= IDLE * found
        starved = visit.starved > 1 - IDLE  # busy, but of taking turns
        return None if loses and not starved else fewer

    def _confirm(self, window: Window, bounds: Bounds) -> None:
        self._queue.pop(0)
        if not self._queue:
            self._next_round()

    def _next_round(self) -> None:
        if self._stage == "extras":
            self._stage = "replay"
            return
        self._round += 1
        counts = self._counts if self._counts is not None else self.rivals()
        counts = [n for n in counts if n not in self._failed]
        if len(counts) < (1 if self._counts is not None else 2) or self._enough(counts):
            self._begin_extras()
            return
        if self._round % 2:
            counts = counts[::-1]
        self._queue = [Setting(n) for n in counts]

    def _enough(self, counts: list[int]) -> bool:
        if self._round < FEWEST_ROUNDS:
            return False
        if self._round >= MOST_ROUNDS:
            return True
        if self._counts is not None:
            return self._round >= FEWEST_ROUNDS + 1
        return all(self._is_clear(n, counts) for n in counts)

    def _is_clear(self, count: int, counts: list[int]) -> bool:
        """Whether more rounds would hardly change how it stands to the best."""
        short, unsure = self._shortfall(count, self._best_of(counts))
        return short + unsure <= NOTABLE or short - unsure > SAME

    def _begin_extras(self) -> None:
        settings = self._extra_settings() if self._extras and self._counts is None else []
        self._queue = [*settings, *settings]
        self._stage = "extras" if settings else "replay"

    def _extra_settings(self) -> list[Setting]:
        """Other ways that might give more with the number that was found."""
        chosen = self.chosen
        visit = self._visits().get(chosen)
        if not visit or not chosen:
            return []
        found = []
        rate_per_s = visit.rate_per_s
        if visit.handling_each_s * rate_per_s > HANDLING:
            found.append(Setting(chosen, "stoker"))
        order_s = sum(w.order_s for w in visit.windows) / sum(w.seconds for w in visit.windows)
        if order_s > ORDER:
            found.append(Setting(chosen, "torch", 4))
        return [Setting(chosen), *found] if found else []

    def _extra(self, window: Window, bounds: Bounds) -> None:
        self._queue.pop(0)
        if not self._queue:
            self._stage = "replay"

    def _replay(self, window: Window, bounds: Bounds) -> None:
        if sum(trial.stage == "replay" for trial in self.trials) >= REPLAYS:
            self._finish(gave_up=False)

    def _finish(self, *, gave_up: bool) -> None:
        self.gave_up = gave_up
        self._stage = "done"

    def _visits(self) -> dict[int, Visit]:
        """What was measured with PyTorch's loader, by number of workers."""
        windows: dict[int, list[Window]] = defaultdict(list)
        for trial in self.trials:
            plain = trial.setting.engine == "torch" and trial.setting.prefetch_factor is None
            if trial.stage != "replay" and plain:
                windows[trial.setting.workers].append(trial.window)
        return {n: Visit.of(n, each) for n, each in windows.items() if n not in self._failed}

    def _rates(self) -> dict[int, float]:
        return {n: visit.rate_per_s for n, visit in self._visits().items() if visit.count}

    def _paired(self) -> dict[int, dict[int, float]]:
        """Rates by number and round, of numbers that were compared in pairs."""
        rates: dict[int, dict[int, float]] = defaultdict(dict)
        for trial in self.trials:
            if trial.stage == "confirm":
                rates[trial.setting.workers][trial.round] = trial.window.rate_per_s
        return dict(rates) if len(rates) > 1 else {}

    def _best_of(self, counts: Sequence[int]) -> int:
        paired = self._paired()
        return max(counts, key=lambda n: sum(paired[n].values()) / len(paired[n]))

    def _fewest_of(self, counts: list[int]) -> int:
        best = self._best_of(counts)
        fits = [n for n in counts if self._within_noise(n, best)]
        return min(fits)

    def _within_noise(self, count: int, best: int) -> bool:
        short, unsure = self._shortfall(count, best)
        return short <= max(SAME, min(unsure, NOTABLE - SAME))

    def _shortfall(self, count: int, best: int) -> tuple[float, float]:
        """By which share a number is slower than the best, and the doubt of that."""
        if count == best:
            return 0.0, 0.0
        paired = self._paired()
        rounds = [each for each in paired[count] if each in paired[best]]
        ratios = sorted(paired[count][each] / paired[best][each] for each in rounds)
        if not ratios:
            return 1.0, 0.0
        middle = (
            ratios[len(ratios) // 2]
            if len(ratios) % 2
            else sum(ratios[len(ratios) // 2 - 1 : len(ratios) // 2 + 1]) / 2
        )
        found = doubt(ratios)
        return 1.0 - middle, 0.1 if found is None else found
