"""A light sampling profiler of the code that makes batches.

```
 resume ──▶ loading ──▶ pause          the watched thread: two clock reads a batch
               ▲
   look, look, look ... then it ends   the sampler's own thread, every 10 ms or so
```

A look finds the line that the watched thread is in and counts the loading time since the look
before for it. So it tells of waiting (sleep, a read, a lock) as well as of computing.

Looks need the interpreter's lock. A function in C that keeps it for long is seen when it returns,
at the line that called it and with all of its time, which is right. Code in Python that runs for
less than 0.2 ms between two places that give up the lock is seen at the second one. Where the CPUs
are overloaded looks come late and more often in places that give it up: waiting is then told too
large, and computing too small.

Cost: two clock reads a batch, about 1 µs, and at most 0.4 % of a CPU once it has found out what a
look takes. Measured on a small virtual machine, where waking a thread is dear (0.1-0.3 ms a look):
0.5-0.7 % of a CPU over the first second, 20 looks a second after it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from stoker.tuning.dearest import Counted
from stoker.watch.places import Place, Places

MOST_PLACES = 300
MOST_CPU = 0.004
"""Share of one CPU that looking may take: where waking a thread is dear, it looks less often."""
_ELSEWHERE = Place("", 0, "", "", False)
_GOLDEN = 0.6180339887498949
SWITCH_S = 0.0002
"""How long a look waits for the interpreter's lock before it asks for it, while there are looks.
With Python's usual 5 ms, samples of less than that would be seen only where they give it up."""
_PACED_AFTER = 8
_SLOWEST_S = 0.1
_PATIENCE_S = 1.0


class Loading:
    """Whether a thread loads just now, and for how long it has; whoever knows sets it.

    Attributes:
        on: Whether it does.
        since_s: Since when.
        before_s: Seconds of loading before that.
    """

    __slots__ = ("before_s", "on", "since_s")

    def __init__(self) -> None:
        self.on = False
        self.since_s = self.before_s = 0.0


class Sampler:
    """Counts where one thread's loading time goes, until it has seen enough.

    Make it in the process whose thread it watches: a forked child has its parent's object, but
    nothing that looks. There it counts nothing and every method may still be called. Its thread
    starts with the first `resume`, is a daemon and ends by itself; `close` ends it at once.

    `resume` and `pause` are for the watched thread, the others for any.
    """

    def __init__(
        self,
        thread_id: int,
        every_s: float = 0.01,
        *,
        most_s: float = 30.0,
        most: int = 3000,
        loading: Loading | None = None,
        clock: Callable[[], float] = time.perf_counter,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        """Nothing is started yet.

        Args:
            thread_id: The watched thread's ``threading.get_ident()``.
            every_s: Mean seconds between two looks.
            most_s: Seconds of loading after which it ends for good.
            most: Looks after which it does.
            loading: Whether the watched thread loads, where others tell that, too.
            clock: Gives seconds.
            frames: Gives the innermost frame of each thread.
        """
        self._thread_id = thread_id
        self._every_s = every_s
        self._most_s = most_s
        self._most = most
        self._clock = clock
        self._frames = frames
        self._pid = os.getpid()
        self.loading = loading or Loading()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._places = Places()
        self._told_s = 0.0
        self._looks = 0
        self._found: dict[Place, tuple[int, float]] = {}

    def resume(self) -> None:
        """The watched thread begins to load; about 0.2 µs, after the first call."""
        if self._thread is None:
            self._start()
        self.loading.since_s = self._clock()
        self.loading.on = True

    def pause(self) -> None:
        """It has ended to load, for now; about 0.2 µs. May be called without `resume`."""
        loading = self.loading
        if loading.on:
            loading.on = False
            loading.before_s += self._clock() - loading.since_s

    def close(self) -> None:
        """Ends the thread and waits for it, for at most a second; the counts stay."""
        self.loading.on = False
        self._ended = True
        thread = self._thread
        if self._pid == os.getpid() and thread is not None and thread.is_alive():
            thread.join(_PATIENCE_S)

    def counts(self) -> list[Counted]:
        """What was found up to now, for `stoker.tuning.dearest.merge`; empty in a fork."""
        if self._pid != os.getpid():
            return []
        return [
            Counted(
                file=place.file,
                line=place.line,
                function=place.function,
                callee=place.callee,
                collating=place.collating,
                looks=looks,
                seconds=seconds,
            )
            for place, (looks, seconds) in self._found.copy().items()
        ]

    @property
    def ended(self) -> bool:
        """Whether it has seen enough, or was closed, or can't look: it costs nothing more."""
        return self._ended

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="stoker sampler", daemon=True)
        if self._pid != os.getpid():
            return
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: then nothing is known, and nothing fails
            self._ended = True

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, usual_s))
        ours_s = sys.getswitchinterval()
        try:
            self._look_on()
        finally:
            if sys.getswitchinterval() == ours_s:  # else the program has set its own
                sys.setswitchinterval(usual_s)

    def _look_on(self) -> None:
        pace_s, wakes = self._every_s, 0
        # An even beat could keep step with the batches and look at the same line again and again.
        while not self._ended:
            time.sleep(pace_s * (0.5 + wakes * _GOLDEN % 1.0))
            wakes += 1
            if not self._looked():
                self._ended = True
            if wakes % _PACED_AFTER == 0:
                pace_s = self._pace_s(wakes)

    def _looked(self) -> bool:
        return not self.loading.on or self.look()

    def _pace_s(self, wakes: int) -> float:
        """Seconds between looks that keep this thread's CPU time within its bound."""
        if not hasattr(time, "thread_time"):
            return self._every_s
        wished_s = time.thread_time() / wakes / MOST_CPU
        return max(self._every_s, min(wished_s, _SLOWEST_S))

    def look(self) -> bool:
        """One look; the sampler's thread calls it. False when there is no more to see."""
        frame = self._frames().get(self._thread_id)
        if frame is None:
            return False
        place = self._places.place(frame)
        del frame  # or the watched thread's objects live until the next look
        loading = self.loading
        if not loading.on:
            return True
        loaded_s = loading.before_s + self._clock() - loading.since_s
        # The watched thread may have paused and resumed between these reads: never back in time.
        self._count(place or _ELSEWHERE, max(0.0, loaded_s - self._told_s))
        self._told_s = max(self._told_s, loaded_s)
        self._looks += 1
        return self._looks < self._most and loaded_s < self._most_s

    def _count(self, place: Place, seconds: float) -> None:
        if place not in self._found and len(self._found) >= MOST_PLACES:
            place = _ELSEWHERE
        looks, before_s = self._found.get(place, (0, 0.0))
        self._found[place] = looks + 1, before_s + seconds
