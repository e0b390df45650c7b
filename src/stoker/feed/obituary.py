"""The words for a worker that died: what is known of its end, and what likely caused it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from stoker.errors import WorkerDied
from stoker.feed.growing import History
from stoker.host.shortage import Shortage
from stoker.order.epoch import Task
from stoker.sizes import in_words
from stoker.workers.death import Died
from stoker.workers.making import IN_COLLATE

_SHOWN_INDICES = 32
_SHOWN_LINES = 60
_LITTLE_SHARED_BYTES = 16 << 20
_NOT_KNOWN = Shortage()


@dataclass(frozen=True)
class Obituary:
    """What is known of a worker's death.

    Attributes:
        death: What the process left.
        task: The batch that it was making; None when idle.
        sharded: Whether the data set is iterable.
        starting: Whether it had not come up, so that it may not have begun with the batch.
        before: What was short when workers were first started.
        after: What is short now.
        history: What it has told of its memory; None: nothing.
        growth: What the memory of workers likely grows by, and what changes that; empty where it
            is not known to grow.
    """

    death: Died
    task: Task | None = None
    sharded: bool = False
    starting: bool = False
    before: Shortage = _NOT_KNOWN
    after: Shortage = _NOT_KNOWN
    history: History | None = None
    growth: tuple[str, str] = ("", "")

    @property
    def how(self) -> str:
        """How it ended, as a clause."""
        code = self.death.exitcode
        if code is None:
            return "exit code not known"
        if code >= 0:
            return f"exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        return f"killed by signal {name} ({-code})"

    @property
    def doing(self) -> str:
        """What it was doing, as a clause."""
        task = self.task
        if task is None:
            return "starting" if self.starting else "waiting for work"
        doing = f"making batch {task.number}"
        if self.starting:
            doing = f"starting, or {doing}"
        if not self.sharded:
            doing += f", sample indices {_shown(task.index)}"
        return doing + self._sample

    @property
    def position(self) -> int | None:
        """Where in its batch the sample is that it was reading; None when not known."""
        noted = self.death.noted
        if self.task is None or noted is None or noted[0] != self.task.number or noted[1] < 0:
            return None
        return noted[1]

    @property
    def sample(self) -> Any:
        """The index of that sample; None when not known."""
        if self.position is None or self.task is None or self.sharded:
            return None
        try:
            return self.task.index[self.position]
        except (TypeError, IndexError, KeyError):
            return self.task.index

    @property
    def _sample(self) -> str:
        if self.position is not None:
            at = "" if self.sharded else f"sample index {self.sample!r}, "
            return f"; at {at}position {self.position} of the batch"
        noted = self.death.noted
        in_collate = noted is not None and noted[1] == IN_COLLATE
        here = self.task is not None and noted is not None and noted[0] == self.task.number
        return "; in collate_fn" if in_collate and here else ""

    @property
    def likely(self) -> str:
        """What likely ended it."""
        if self.death.why:
            return self.death.why
        code = self.death.exitcode
        if code == -signal.SIGTERM:
            return "somebody, or the system's manager, asked the process to end"
        if code == _KILLED:
            return self._killed
        if code == _BUS:
            return self._bus
        if self.starting and code == 1:
            return (
                "an error while it started, which it has printed, such as something that a new "
                'process does not find: it was defined under `if __name__ == "__main__":`; or '
                "code that ends the process, in worker_init_fn, the data set or a library"
            )
        if code is not None and code < 0:
            return _LIKELY.get(-code, "somebody, or a program, sent it that signal")
        places = "worker_init_fn, the data set" if self.starting else "the data set"
        return f"code that ends the process, in {places} or a library"

    @property
    def change(self) -> str:
        """What to change."""
        if self.starting and self.task is None:
            return "what is run when a worker starts: num_workers=0 runs no worker_init_fn"
        if self.death.exitcode == -signal.SIGTERM:
            return "who sends SIGTERM to the workers; max_restarts= bounds how many are replaced"
        if self.death.exitcode == _KILLED and _MEMORY in self.likely:
            usual = "smaller batches, fewer workers, or prefetch_factor= and memory_limit="
            return self.growth[1] or usual
        return "num_workers=0 shows the fault in the main process, which it may end as well"

    @property
    def _killed(self) -> str:
        kills = (
            (self.before.group_kills, self.after.group_kills),
            (self.before.machine_kills, self.after.machine_kills),
        )
        if any(was is not None and now is not None and now > was for was, now in kills):
            return f"{_MEMORY} and killed it{self._grew}"
        if all(was is None or now is None for was, now in kills):
            return f"{_MEMORY} and killed it (its log tells), or somebody did{self._grew}"
        return (
            "somebody, or a program, killed it, perhaps the data set's own code: the system counts "
            "no lack of memory"
        )

    @property
    def _grew(self) -> str:
        """What the growth of memory likely comes from, as a clause."""
        return f"; workers' memory has grown, likely by {self.growth[0]}" if self.growth[0] else ""

    @property
    def _bus(self) -> str:
        free = self.after.shared_free_bytes
        if free is not None and free < _LITTLE_SHARED_BYTES:
            return f"shared memory is full: {in_words(free)} are free in /dev/shm"
        return "a file that shrank, or went away, while it was mapped; a full disk behind it"

    @property
    def facts(self) -> list[str]:
        """What was measured, one line each."""
        lines = []
        if self.death.peak_bytes:
            lines.append(f"the worker had {in_words(self.death.peak_bytes)} of memory at its peak")
        if self.history is not None and self.history.looks:
            own, grown = self.history.looks[-1].private_bytes, self.history.grown_bytes
            since = f", {in_words(grown)} more than when it was ready" if grown > 0 else ""
            lines.append(f"it had {in_words(own)} of that for itself when it last looked{since}")
        for where, was, now in (
            ("its control group", self.before.group_kills, self.after.group_kills),
            ("the machine", self.before.machine_kills, self.after.machine_kills),
        ):
            if was is not None and now is not None:
                lines.append(f"killed for lack of memory in {where}: {was} before, {now} after")
                break
        free, size = self.after.shared_free_bytes, self.after.shared_bytes
        if free is not None and size:
            lines.append(f"free in /dev/shm: {in_words(free)} of {in_words(size)}")
        return lines

    def error(self, why: str = "", cause: str = "") -> WorkerDied:
        """The error; begins with torch's words for it.

        Args:
            why: Why it is not replaced, as a clause; empty: that needs no words.
            cause: The likely cause, where more is known than the death itself tells.
        """
        what = f"DataLoader worker (pid(s) {self.death.pid}) exited unexpectedly: {self.how}"
        error = WorkerDied(
            f"{what}; {why}" if why else what,
            doing=self.doing,
            likely=cause or self.likely,
            change=self.change,
        )
        more = [f"  {fact}" for fact in self.facts]
        stack = self.death.stack.splitlines()
        if stack:
            more += ["  its Python stack:", *(f"    {line}" for line in stack[:_SHOWN_LINES])]
        words = self.death.last_words.splitlines()
        if words:
            more += ["  the last it wrote:", *(f"    {line}" for line in words[-_SHOWN_LINES:])]
        error.args = ("\n".join([str(error), *more]),)
        self._tell(error)
        return error

    def _tell(self, error: WorkerDied) -> None:
        death, task = self.death, self.task
        error.pid, error.exitcode = death.pid, death.exitcode
        error.peak_bytes, error.stack = death.peak_bytes, death.stack
        error.last_words = death.last_words
        error.oom_kills = (self.before.group_kills, self.after.group_kills)
        error.shared_free_bytes = self.after.shared_free_bytes
        error.position, error.sample = self.position, self.sample
        if task is not None:
            error.batch, error.indices = task.number, None if self.sharded else task.index


def _shown(index: Any) -> str:
    try:
        if len(index) > _SHOWN_INDICES:
            return f"[{', '.join(map(repr, index[:_SHOWN_INDICES]))}, ... {len(index):,} in all]"
    except Exception:  # No list: one index, of whatever kind.
        pass
    return repr(index)


_MEMORY = "the system ran out of memory"
_KILLED = -getattr(signal, "SIGKILL", 9)
_BUS = -getattr(signal, "SIGBUS", 7)
_LIKELY = {
    1: "the terminal or the session that it belonged to was closed",
    4: "a compiled library that the data set uses has code that this CPU can't run",
    6: "a compiled library that the data set uses gave up",
    8: "a compiled library that the data set uses divided by zero",
    11: "a fault in a compiled library that the data set uses, or a stack that overflowed",
    13: "it wrote into a pipe that nobody reads any more",
    14: "a timer that was set in the worker went off",
    24: "it reached its limit of CPU time (`ulimit -t`, or the scheduler's)",
    25: "a file that it wrote passed the limit of a file's size (`ulimit -f`)",
}
"""By the number of a signal on Linux, most of which are the same elsewhere."""
