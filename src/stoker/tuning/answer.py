"""What is answered about a loader, and about a whole program: plain, frozen records. Pure.

A `Report` is what ``stoker tune`` found; every page, table and file is made from one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stoker.tuning.recommend import CountSummary
from stoker.tuning.result import Failure, LoaderFacts

if TYPE_CHECKING:  # reading the facts is not pure, holding them is
    from stoker.host.cpus import CpuFacts
    from stoker.host.facts import Fact
    from stoker.host.software import SoftwareFacts

LimitKind = Literal[
    "consumer", "cpu", "storage", "order", "transport", "main process", "memory", "start", "unknown"
]
"""What keeps batches from coming faster.

"consumer": its own step; no loader setting can help. "cpu": the workers have no more CPU.
"storage": what samples wait for off the CPU (disk, network, a lock, a sleep).
"order": later batches are ready and wait for an earlier one. "transport": bringing batches from
workers to the main process. "main process": batches are made there, or it has no time to hand
them on. "memory": no room for more workers. "start": starting workers, epoch for epoch.
"""


@dataclass(frozen=True)
class Site:
    """The line of code that made a loader.

    Attributes:
        file: Path of the file, as the program's own traceback would show it.
        line: Its line, from 1.
        function: Name of the function; "<module>" at the top.
        code: The source line, without indentation; empty where it can't be read.
        library: The library that made the loader for that line: "transformers", "accelerate",
            "lightning"; empty where the line itself calls ``DataLoader``.
    """

    file: str
    line: int
    function: str
    code: str
    library: str = ""


@dataclass(frozen=True)
class Rate:
    """What was measured with one setting.

    Attributes:
        summary: Count, rates, spread and the time to the first batch.
        waiting: Share of the time that the consumer waited for a batch, or made it itself.
        busy_workers: Workers that made a batch, on average; None when not known.
        cpus_used: CPUs that making batches used, on average; None when not known.
        memory_bytes: Memory of the workers that is theirs alone, and of batches in flight; None
            when not known. With 0 workers 0.
        own: Whether this is what the user's program has now.
        engine: Whose loader: PyTorch's or Stoker's.
        prefetch_factor: None where it is the default or there are no workers.
    """

    summary: CountSummary
    waiting: float
    busy_workers: float | None = None
    cpus_used: float | None = None
    memory_bytes: int | None = None
    own: bool = False
    engine: Literal["torch", "stoker"] = "torch"
    prefetch_factor: int | None = None


@dataclass(frozen=True)
class Parts:
    """Where the time of one batch goes, in seconds for a batch.

    The consumer's time between two batches is ``step_s + waited_s + handling_s + loading_s``. The
    others are a worker's, or the main process's while it loads, and pass beside that time.

    Attributes:
        num_workers: The number of workers that these times belong to.
        step_s: The consumer's own step.
        waited_s: The consumer waited for a batch that was not ready.
        handling_s: The main process's own work of receiving a batch.
        loading_s: Making a batch in the main process; 0 with workers.
        computing_s: Making a batch: on a CPU.
        off_cpu_s: Making a batch: waiting for storage, the network, a lock, or asleep.
        starved_s: Making a batch: ready to run, without a free CPU.
        order_s: Of `waited_s`, how long a later batch was ready.
    """

    num_workers: int
    step_s: float
    waited_s: float
    handling_s: float
    loading_s: float
    computing_s: float
    off_cpu_s: float
    starved_s: float
    order_s: float = 0.0

    @property
    def service_s(self) -> float:
        """Making one batch, from start to end."""
        return self.computing_s + self.off_cpu_s + self.starved_s


@dataclass(frozen=True)
class Limit:
    """What keeps batches from coming faster, and a sentence that says so with its numbers.

    Attributes:
        kind: What it is.
        sentence: Says so, with the numbers.
        shared: For "storage": whether workers were seen to share what samples wait for, so that
            more of them bring no more; None for other kinds.
    """

    kind: LimitKind
    sentence: str
    shared: bool | None = None


@dataclass(frozen=True)
class Line:
    """A line of the user's code that loading spends its time in.

    Attributes:
        file: Path of the file.
        line: Its line, from 1.
        function: Name of the function that the line is in.
        code: The source line, without indentation; empty where it can't be read.
        share: Share of the loading time spent in this line and in what it calls, 0 to 1.
        samples: Looks that found it there.
        callee: The deepest function of a library that was most often found below it, as
            "PIL.Image.resize"; empty where the line itself does the work.
    """

    file: str
    line: int
    function: str
    code: str
    share: float
    samples: int
    callee: str = ""


@dataclass(frozen=True)
class Change:
    """The one change that brings the gain.

    Attributes:
        text: What to write, as "num_workers=4, persistent_workers=True  (now num_workers=0)".
        file: Path of the file to change; empty where there is none.
        line: Its line, from 1; 0 where there is none.
        before: That source line now; empty where it can't be changed by itself.
        after: The line with the change; empty where it can't be changed by itself.
        serves: Names of the answers that it is for, where one line made several loaders.
    """

    text: str
    file: str = ""
    line: int = 0
    before: str = ""
    after: str = ""
    serves: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A stretch of the timeline.

    Attributes:
        track: Whose: "consumer", or "worker 0", "worker 1", ...
        name: "step", "wait", "load" (in the main process), "make" (in a worker), "start", "replay".
        start_s: Seconds since the program began.
        end_s: The same.
        batch: Number of the batch in its epoch; None where that is not known.
        num_workers: Workers at that time.
    """

    track: str
    name: str
    start_s: float
    end_s: float
    batch: int | None = None
    num_workers: int = 0


@dataclass(frozen=True)
class Work:
    """What a batch costs, for foretelling it elsewhere.

    Attributes:
        service_s: Making a batch in a worker that has a CPU whenever it wants one.
        cpu_s: Of that, on a CPU.
        step_s: The consumer's own time for a batch.
        handling_s: The main process's own work for a batch that a worker made.
        spread: Standard deviation of `service_s` from batch to batch, as a share of it.
        worker_bytes: Memory that each worker has for itself; None when not known.
        batch_bytes: Size of a batch; 0 when not known.
        start_s: Starting one worker.
        doubt: Standard error of `service_s`, as a share of it.
    """

    service_s: float
    cpu_s: float
    step_s: float
    handling_s: float
    spread: float
    worker_bytes: int | None
    batch_bytes: int
    start_s: float
    doubt: float


@dataclass(frozen=True)
class Advice:
    """The recommended setting.

    Attributes:
        num_workers: The fewest workers within noise of the best.
        batches_per_s: What the consumer got with them.
        reason: Why, in one sentence.
        certain: False when more measurements might change it.
        arguments: Other arguments worth changing, as pairs of a name and Python source:
            ("persistent_workers", "True").
        gain: Rate with all that over the rate now; 1.0 is nothing. None when not known.
    """

    num_workers: int
    batches_per_s: float
    reason: str
    certain: bool
    arguments: tuple[tuple[str, str], ...] = ()
    gain: float | None = None


@dataclass(frozen=True)
class Answer:
    """Everything found about one loader.

    Attributes:
        name: For people: "train.py:31", or the target as it was given.
        loader: The loader as its user made it; None when it could not be made.
        consumer: What used the batches, in plain words: "the script's own step", "a step of
            40 ms", "nothing: batches are dropped".
        site: Where it was made; None for a target.
        made: Loaders that were made at this line.
        epochs: Epochs begun.
        batches: Batches handed out.
        seconds: Time that was watched.
        now_per_s: Batches a second with the program's own setting; None when not measured.
        waiting: Share of the time that the consumer waited, with the program's own setting.
        step_s: The consumer's own time for a batch; None when not measured.
        start_s: From ``iter(loader)`` to the first batch, mean of all epochs with the own setting.
        bound_per_s: Batches a second with batches that were ready: no loader setting gives more.
        most_gain: `bound_per_s` over `now_per_s`.
        rates: What was measured, by rising number of workers.
        limit: What keeps batches from coming faster, at the recommended setting.
        advice: None when nothing could be measured to the end; `limit` then says why.
        change: None where there is nothing to change.
        parts: Where the time of a batch goes with the program's own setting.
        best_parts: The same with the recommended one.
        lines: The dearest lines of loading, dearest first.
        timeline: Some stretches to look at, in order of time.
        waits: Upper bounds in seconds, and how many waits were up to it and above the one before.
        remarks: What else stood out, a sentence each.
        work: What a batch costs; None when not measured.
    """

    name: str
    loader: LoaderFacts | None
    consumer: str
    site: Site | None = None
    made: int = 1
    epochs: int = 0
    batches: int = 0
    seconds: float = 0.0
    now_per_s: float | None = None
    waiting: float | None = None
    step_s: float | None = None
    start_s: float | None = None
    bound_per_s: float | None = None
    most_gain: float | None = None
    rates: tuple[Rate, ...] = ()
    limit: Limit = Limit("unknown", "")
    advice: Advice | None = None
    change: Change | None = None
    parts: Parts | None = None
    best_parts: Parts | None = None
    lines: tuple[Line, ...] = ()
    timeline: tuple[Span, ...] = ()
    waits: tuple[tuple[float, int], ...] = ()
    remarks: tuple[str, ...] = ()
    work: Work | None = None

    @property
    def nothing_to_gain(self) -> bool:
        """Whether the setting that there is should stay."""
        return self.advice is not None and self.change is None


@dataclass(frozen=True)
class Report:
    """Everything that one run of ``stoker tune`` found.

    Attributes:
        command: What was measured: the target, or the program with its arguments.
        kind: "target": one loader. "program": a script with the loaders that it made.
        answers: One for each loader, the one that cost most waiting first.
        failures: What went wrong, in order.
        cpus: The CPUs of this process.
        memory: Memory that was available when it began, in bytes.
        software: Versions.
        elapsed_s: Seconds the whole run took.
        ended: How the program ended, in plain words: "stopped: every loader has an answer".
        exit_code: The program's own exit code, or minus the signal that ended it; None where it
            was stopped, and for a target.
    """

    command: str
    kind: Literal["target", "program"]
    answers: tuple[Answer, ...]
    failures: tuple[Failure, ...]
    cpus: CpuFacts
    memory: Fact[int]
    software: SoftwareFacts
    elapsed_s: float
    ended: str = ""
    exit_code: int | None = None
