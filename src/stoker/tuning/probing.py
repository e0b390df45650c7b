"""Which setting of a loader to measure next, in a program that runs. Pure.

    own ──▶ search ──▶ confirm ──▶ again ──▶ extras ──▶ replay ──▶ done
                        (rounds)

First the program's own setting. Then the search of `Controller`, which begins in the main
process with the closed form, and is quick rather than exact. What it finds is then measured in
turn with its rivals, round by round, so that a machine that becomes slower does so for all of
them; a number beside them joins where it could be better, or do as well with fewer. The program's
own number, which was seen while the program was warming up, is then measured again beside what
was found, unless it was one of those. Settings other than the number follow where they could
matter, and at the end batches that are ready, which no loader setting can beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoker.feed.window import Window
from stoker.tuning.asks import Ask, Setting, Stage, Trial, others_worth_a_try
from stoker.tuning.contest import Contest
from stoker.tuning.controller import Controller
from stoker.tuning.decision import Bounds
from stoker.tuning.stretch import length_of
from stoker.tuning.visits import Visit, measurable

__all__ = ["Ask", "Prober", "Setting", "Stage", "Trial"]

OWN_WINDOWS, OWN_S, MOST_OWN_WINDOWS = 2, 0.5, 6
"""Windows and seconds of the program's own setting before anything is changed."""
AGREE = 1.25
"""Times by which they may differ before another one is taken."""
LONG_S = 2.0
"""One window of so many seconds is enough for that."""
LATE_S = 3.0
"""Seconds that may go by for the own setting, once there is a window; and for a stretch that is
to be repeated: a loader that is only now and then asked for has few."""
RARE_S, RARE = 2.0, 0.01
"""Where more seconds go by for a stretch in the main process, and less of them is spent on
making batches, no other number can gain anything."""
SEARCH_WINDOWS = 40
"""Windows after which the search ends with the best so far."""
SEARCH_PATIENCE = 3
"""Windows after which a rate is known well enough to go on: what comes close is compared in
rounds afterwards."""
LIMIT_S, LIMIT_BATCHES, LONGEST_S = 6.0, 10, 30.0
"""Seconds of measuring after which the best so far has to do, and batches for which there is
more time, up to the third."""
SEARCH_SHARE = 0.6
"""Share of these that the search may take."""
ROUNDS = 3
"""Rounds of given numbers."""
AGAIN_S = 8.0
"""Seconds that measuring the program's own number again may take."""
REPLAY_S, REPLAY_BATCHES = 0.25, 8
REPLAYS = 2
SAME = 0.02
"""Rates that differ by less are the same, and fewer workers win."""
MOST_ODD = 20
"""Windows in a row that tell nothing, after which none will."""


class Prober:
    """Names what to measure until the answer for one loader is certain.

    Args:
        own: The program's own setting.
        counts: Exactly these numbers of workers are measured, in rounds; None to search.
        most: The most workers that may be tried at all.
        extras: Whether settings other than the number may be tried.

    Attributes:
        ask: What to measure now.
        trials: Everything that was measured.
        gave_up: Whether it ended before the answer was certain.
        rare: Share of the program's time in which it waits for this loader, where that is too
            little to measure another number for; else 0.
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
        self.gave_up = False
        self.rare = 0.0
        self._most, self._extras = most, extras
        self._counts = sorted(set(counts)) if counts is not None else None
        self._controller = Controller(SEARCH_PATIENCE)
        self._stage: Stage = "own"
        self._here = own
        self._contest = Contest()
        self._round = 0
        self._queue: list[Setting] = []
        self._failed: set[int] = set()
        self._reasons: dict[int, str] = {}
        self._decided: int | None = None
        self._visits: dict[int, Visit] = {}
        self._spent_s = self._passed_s = 0.0
        self._searched = self._odd = 0
        self._recalled = self._whole = False
        self._bounds: Bounds | None = None
        self.ask = self._next_ask()

    @property
    def stage(self) -> Stage:
        """Where it stands."""
        return self._stage

    @property
    def reason(self) -> str:
        """Why the search named the chosen number; empty where it was not the search."""
        return self._reasons.get(self.chosen, "")

    @property
    def chosen(self) -> int:
        """The number that is best as far as is known."""
        if self._decided is not None:
            return self._decided
        found = self._contest.fewest(self._visits, self._bounds) if self._bounds else None
        if found is not None:
            return found
        rates = self._rates()
        if not rates:
            return self.own
        best = max(rates.values())
        return min(n for n, rate in rates.items() if rate >= (1 - SAME) * best)

    def rivals(self) -> list[int]:
        """The numbers that were compared in rounds."""
        counts = self._contest.counts
        return counts if len(counts) > 1 else []

    def observe(self, window: Window, bounds: Bounds, passed_s: float | None = None) -> None:
        """Takes the window that was asked for.

        Args:
            window: A clean stretch with the setting asked for.
            bounds: What may be used now.
            passed_s: Seconds that went by for it, with the start of workers and the batches that
                were not measured; None to estimate that.
        """
        ask = self.ask
        if ask.stage == "done":
            return
        window = replace(window, workers=ask.setting.workers)
        if ask.stage != "replay" and not measurable(window):
            self._odd += 1
            if self._odd >= MOST_ODD:
                self.stop()
            return
        self._odd = 0
        self._bounds = bounds = self._allowed(bounds)
        if window.whole and not self._whole:
            self._forget_steady(bounds)
        self._take(ask, window, passed_s)
        {
            "own": self._own,
            "search": self._search,
            "confirm": self._confirm,
            "again": self._again,
            "extras": self._extra,
            "replay": self._replay,
        }[ask.stage](window, bounds)
        self.ask = self._next_ask()

    def failed(self, workers: int, why: str) -> None:
        """The setting asked for did not work with so many workers: it is not tried again."""
        if self._stage in ("own", "search", "confirm"):
            self._exclude(workers, why)
        elif self._stage == "again":
            self._begin_extras()
        elif self._stage == "extras":
            setting = self._queue[0]
            self._queue = [each for each in self._queue if each != setting]
            if not self._queue:
                self._stage = "replay"
        self.ask = self._next_ask()

    def stop(self) -> None:
        """There is no time for more: what was measured has to do."""
        if self._stage != "done":
            self._finish(gave_up=self.gave_up or self._decided is None)

    # -- what is asked --------------------------------------------------------------------

    def _next_ask(self) -> Ask:
        stage = self._stage
        if stage == "own":
            return Ask("own", Setting(self.own), *self._length(self.own))
        if stage == "search":
            batches, seconds = self._length(self._here)
            return Ask("search", Setting(self._here), batches, seconds)
        if stage in ("confirm", "again", "extras"):
            setting = self._queue[0]
            length = self._length(setting.workers)
            return Ask(stage, setting, *length, self._turn, fresh=True)
        if stage == "replay":
            return Ask("replay", Setting(self.chosen), REPLAY_BATCHES, REPLAY_S)
        return Ask("done", Setting(self.chosen), 0, 0.0)

    @property
    def _turn(self) -> int:
        """The round of what is asked; the own number again belongs to the last ones."""
        if self._stage != "again":
            return self._round
        return max(0, self._round - 1 - sum(each.stage == "again" for each in self.trials))

    def _length(self, count: int) -> tuple[int, float]:
        """Batches and seconds of a window with so many workers."""
        return length_of(count, self._visits)

    def _allowed(self, bounds: Bounds) -> Bounds:
        most = bounds.workers if self._most is None else min(bounds.workers, self._most)
        least = max(bounds.least, 1 if 0 in self._failed else 0)
        return replace(bounds, workers=max(most, least), least=least)

    def _take(self, ask: Ask, window: Window, passed_s: float | None) -> None:
        before = self.trials[-1].setting if self.trials else ask.setting
        self.trials.append(Trial(ask.setting, ask.stage, ask.round, window))
        if passed_s is None:
            anew = ask.stage != "replay" and (ask.fresh or before != ask.setting)
            passed_s = window.seconds
            if anew:
                passed_s += ask.setting.workers / window.rate_per_s + window.service_s
        self._passed_s = passed_s
        if ask.stage == "replay":
            return
        self._spent_s += passed_s
        count = ask.setting.workers
        if ask.setting == Setting(count):
            self._visits.setdefault(count, Visit(count)).add(window)

    def _forget_steady(self, bounds: Bounds) -> None:
        """Rates without the start of workers say nothing beside those of whole epochs: the
        numbers that are still of interest are measured again.
        """
        self._whole = True
        self._visits = {n: visit for n, visit in self._visits.items() if not n}
        if self._stage in ("own", "search"):
            self._controller = Controller(SEARCH_PATIENCE)
            for visit in self._visits.values():
                for window in visit.windows:
                    self._controller.observe(window, bounds)
        elif self._stage == "confirm":
            waiting = {each.workers for each in self._queue}
            forgotten = self._contest.forget_workers()
            self._queue += [Setting(n) for n in forgotten if n not in waiting]

    # -- stages ---------------------------------------------------------------------------

    def _own(self, window: Window, bounds: Bounds) -> None:
        self.rare = self._rarely_waited_for(window)
        if self.rare:
            self._finish(gave_up=False)
            return
        if self._spent_s < LATE_S and self._needs_more_of_own():
            return
        if self._counts is not None:
            self._begin_rounds([n for n in self._counts if n not in self._failed])
            return
        self._stage, self._spent_s = "search", 0.0
        self._here = min(max(0, bounds.least), bounds.workers)
        self._controller.changed(self._here)
        self._recall(bounds)
        self._end_search_if_found(bounds)

    def _rarely_waited_for(self, window: Window) -> float:
        """See `rare`. Not said of workers, whose start may be what is waited for."""
        if self.own or self._counts is not None or self._passed_s < RARE_S:
            return 0.0
        share = window.waiting * window.seconds / self._passed_s
        return share if share < RARE else 0.0

    def _needs_more_of_own(self) -> bool:
        windows = list(self._visits[self.own].windows)
        seconds = sum(each.seconds for each in windows)
        if len(windows) < OWN_WINDOWS and seconds < LONG_S:
            return True
        rates = [each.rate_per_s for each in windows]
        more = seconds < OWN_S or (max(rates) > AGREE * min(rates) and seconds < LONG_S)
        return more and len(windows) < MOST_OWN_WINDOWS

    def _search(self, window: Window, bounds: Bounds) -> None:
        self._searched += 1
        self._follow(window, bounds)
        self._recall(bounds)
        self._end_search_if_found(bounds)

    def _follow(self, window: Window, bounds: Bounds) -> None:
        decision = self._controller.observe(window, bounds)
        if decision is None:
            return
        starts = not decision.before and not self._reasons
        if starts or decision.before == decision.workers:  # what leads on is no reason to stay
            self._reasons[decision.workers] = decision.reason
        self._here = decision.workers

    def _recall(self, bounds: Bounds) -> None:
        """The program's own setting needs not be measured again where the search comes to it."""
        if self._here != self.own or self._recalled:
            return
        self._recalled = True
        for window in list(self._visits[self.own].windows):
            if self._here == self.own and not self._controller.settled:
                self._follow(window, bounds)

    def _end_search_if_found(self, bounds: Bounds) -> None:
        """The search is over where it is settled, or would only measure something again."""
        here = self.trials[-1].setting.workers
        again = self._here not in (here, self.own) and self._here in self._visits
        spent = self._searched >= SEARCH_WINDOWS or self._spent_s > SEARCH_SHARE * self._limit_s
        if self._controller.settled or again or spent:
            self._begin_rounds(self._contest.begin(self._visits, bounds, self._failed))

    def _begin_rounds(self, counts: Sequence[int]) -> None:
        self._stage, self._round = "confirm", 0
        self._queue = [Setting(n) for n in counts]
        if len(counts) < (1 if self._counts is not None else 2):
            self._queue = []
            self._decide(next(iter(counts), None))

    def _confirm(self, window: Window, bounds: Bounds) -> None:
        setting = self._queue.pop(0)
        self._contest.add(setting.workers, self._round, window, self._visits)
        if not self._queue:
            self._next_round(bounds)

    def _next_round(self, bounds: Bounds) -> None:
        self._round += 1
        if self._counts is not None:
            counts = [n for n in self._counts if n not in self._failed]
            over = self._round >= ROUNDS
        else:
            counts = self._contest.next(self._visits, bounds, self._failed)
            over = not counts or self._spent_s > self._limit_s
            self.gave_up = bool(counts) or self._contest.unclear
        if over or not counts:
            self._decide()
            return
        self._queue = [Setting(n) for n in (counts[::-1] if self._round % 2 else counts)]

    def _decide(self, found: int | None = None) -> None:
        """The number is found: what the rounds say, or the only one that there was for them."""
        measured = found is not None and found in self._visits
        self._decided = found if measured else self.chosen
        self._stage, self._queue = "again", self._own_again()
        if not self._queue:
            self._begin_extras()

    def _own_again(self) -> list[Setting]:
        """The program's own number, where it was seen only while the program began."""
        own, visit = self.own, self._visits.get(self.own)
        if own in self._contest.counts or own in self._failed:
            return []
        if visit is None:
            return [Setting(own)] if self._whole else []
        batches = own + self._length(own)[0]
        takes_s = visit.service_s + batches / visit.rate_per_s
        return [Setting(own)] if takes_s <= AGAIN_S else []

    def _again(self, window: Window, bounds: Bounds) -> None:
        """Once; where it is another rate than at first, twice."""
        early = [t.window.rate_per_s for t in self.trials if t.stage == "own"]
        rates = [window.rate_per_s, *early[-1:]]
        alike = max(rates) <= AGREE * min(rates)
        if alike or sum(t.stage == "again" for t in self.trials) > 1:
            self._begin_extras()

    def _begin_extras(self) -> None:
        settings = self._extra_settings() if self._extras and self._counts is None else []
        self._queue = [*settings, *settings]
        self._stage = "extras" if settings else "replay"

    def _extra_settings(self) -> list[Setting]:
        """Other ways that might give more with the number that was found."""
        visit = self._visits.get(self.chosen)
        return others_worth_a_try(visit) if visit else []

    def _extra(self, window: Window, bounds: Bounds) -> None:
        self._queue.pop(0)
        if not self._queue:
            self._stage = "replay"

    def _replay(self, window: Window, bounds: Bounds) -> None:
        often = sum(trial.stage == "replay" for trial in self.trials) >= REPLAYS
        if often or self._passed_s > LATE_S:
            self._finish(gave_up=self.gave_up)

    def _finish(self, *, gave_up: bool) -> None:
        self._decided = self.chosen
        self.gave_up = gave_up
        self._stage = "done"
        self.ask = self._next_ask()

    # -- what failed ----------------------------------------------------------------------

    def _exclude(self, workers: int, why: str) -> None:
        self._failed.add(workers)
        self._visits.pop(workers, None)
        self._contest.drop(workers)
        self._queue = [each for each in self._queue if each.workers != workers]
        if self._stage == "confirm":
            if not self._queue and self._bounds is not None:
                self._next_round(self._bounds)
            return
        works = self._visits
        if not works or self._bounds is None:
            self._finish(gave_up=True)
        elif workers == 0 and max(works):
            self._bounds = self._allowed(self._bounds)
            self._here = max(1, self._bounds.least)
            self._controller.changed(self._here)
        elif workers > max(works):
            self._controller.cannot_exceed(max(works), why)
            self._here = max(works)
        else:
            self._begin_rounds(self._contest.begin(works, self._bounds, self._failed))

    # -- what is known --------------------------------------------------------------------

    @property
    def _limit_s(self) -> float:
        slowest = max((visit.service_s for visit in self._visits.values()), default=0.0)
        return min(LONGEST_S, LIMIT_S + LIMIT_BATCHES * slowest)

    def _rates(self) -> dict[int, float]:
        rates = {n: visit.rate_per_s for n, visit in self._visits.items() if visit.count}
        given = {n: rate for n, rate in rates.items() if n in (self._counts or ())}
        return given or rates
