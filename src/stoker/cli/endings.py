"""How a program that was measured came to its end, and what that means."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import StokerError
from stoker.tuning.answer import Report
from stoker.tuning.result import Failure
from stoker.tuning.wording import duration
from stoker.watch.launch import Ended
from stoker.watch.parts import failures_in
from stoker.watch.target_program import FAILED

INTERRUPTED = 130
"""What the program of a target ends with where it was interrupted."""
WRONG_USAGE = 2
"""What programs end with whose arguments are wrong, argparse's and click's among them."""
INTERRUPTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Attributes:
        ended: Its exit code.
        stopping: Why it stopped itself; empty where it did not.
        hung: Whether it was ended because no batch came.
        pressed: Whether because its time was over.
        is_target: Whether it is the program that uses one loader for ever.
    """

    ended: Ended
    stopping: str
    hung: bool
    pressed: bool
    is_target: bool

    @property
    def by_itself(self) -> bool:
        """Whether nobody of ours had stopped it."""
        return not (self.stopping or self.hung or self.pressed)

    @property
    def interrupted_by(self) -> int:
        """The signal with which somebody ended a target; 0 where nobody did."""
        number = -self.ended.returncode
        if self.is_target and self.by_itself and number == -INTERRUPTED:
            return int(signal.SIGINT)
        asked = self.is_target and self.by_itself and number > 0
        return number if asked and name_of(number) in INTERRUPTS else 0

    def text(self) -> str:
        """In plain words."""
        if self.stopping:
            colon = "" if self.stopping.startswith("after") else ":"
            return f"stopped{colon} {self.stopping}"
        if self.hung:
            return "stopped: no batch came"
        if self.pressed:
            return "stopped: its time was over"
        code = self.ended.returncode
        return (
            f"ended by {name_of(-code)}" if code < 0 else f"ended by itself with exit code {code}"
        )


def name_of(number: int) -> str:
    """Of a signal: "SIGTERM"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def failures_of(folder: Path, ending: Ending, timeout_s: float) -> list[Failure]:
    """What went wrong, in the four parts of every error."""
    told = _told_by_target(folder)
    failures = [told] if told else []
    failures += [
        Failure("raised", None, reason, "watching the program")
        for reason in failures_in(str(folder))
    ]
    if ending.hung:
        failures.append(_hang(timeout_s))
    elif ending.interrupted_by:
        what = f"Interrupted by {name_of(ending.interrupted_by)}."
        failures.append(Failure("interrupted", None, what, "measuring"))
    elif ending.is_target and ending.by_itself and not failures:
        failures.append(_died(ending))
    return failures


def _told_by_target(folder: Path) -> Failure | None:
    with contextlib.suppress(OSError, ValueError):
        return Failure(**json.loads((folder / FAILED).read_text(encoding="utf-8")))
    return None


def _hang(timeout_s: float) -> Failure:
    return Failure(
        "hang",
        None,
        f"No batch came within {duration(timeout_s)}.",
        "reading batches",
        "the data set waits for something that does not come",
        "--timeout, if batches may take longer",
    )


def _died(ending: Ending) -> Failure:
    return Failure(
        "died",
        None,
        f"The process that used the loader {ending.text()}.",
        "reading batches",
        "memory ran out, or code of the data set ended or crashed the process",
        "read an epoch in a program of your own to see it happen",
    )


def no_loader(report: Report, misplaced: Sequence[str] = ()) -> StokerError:
    """Nothing could be answered: the program made no loader that was iterated.

    Args:
        report: What was seen.
        misplaced: Arguments of the program that are names of options of the command.
    """
    reasons = "; ".join(failure.what for failure in report.failures)
    if misplaced and report.exit_code == WRONG_USAGE:
        return StokerError(
            f"'{report.command}' iterated no DataLoader of PyTorch.",
            doing=f"watching it for {duration(report.elapsed_s)}; it {report.ended}",
            likely=f"it does not know {' and '.join(misplaced)}: options of stoker come before the "
            "program, and all that comes after it is the program's own",
            change=f"put {' and '.join(misplaced)} before the program",
        )
    return StokerError(
        f"'{report.command}' iterated no DataLoader of PyTorch.",
        doing=f"watching it for {duration(report.elapsed_s)}; it {report.ended}",
        likely=reasons or "it ended before it loaded, or loads in another way",
        change="run it with `python` to see whether it loads at all",
    )
