"""Realistic reports of ``stoker tune``, invented: for every page, table and file made of one."""

from __future__ import annotations

import math
from dataclasses import replace

from stoker.host.facts import Fact
from stoker.host.software import SoftwareFacts
from stoker.tuning.answer import (
    Advice,
    Answer,
    Change,
    Limit,
    Line,
    Parts,
    Rate,
    Report,
    Site,
    Span,
    Work,
)
from stoker.tuning.recommend import CountSummary
from stoker.tuning.result import Failure, LoaderFacts
from tests.unit.report.invented import CPUS

MEMORY = Fact(int(29.4 * 2**30), "psutil.virtual_memory; no cgroup limits memory")
SOFTWARE = SoftwareFacts("3.11.7", "Linux 6.8.0 x86_64")
MIB = 2**20


def rate(
    count: int, per_s: float, spread: float | None = 0.02, first_s: float = 0.4, **others: object
) -> Rate:
    """A rate at a count; `others` are further fields of `Rate`."""
    summary = CountSummary(
        num_workers=count,
        batches_per_s=per_s,
        epoch_batches_per_s=per_s * 0.985,
        first_batch_s=first_s,
        epoch_s=None,
        spread=spread,
        repeats=1 if spread is None else 3,
        method="steady",
        complete=True,
    )
    waiting = max(0.0, 1.0 - per_s / 24.4)
    return replace(Rate(summary, waiting), **others)  # type: ignore[arg-type]


def timeline(count: int, begin_s: float, batches: int, step_s: float, make_s: float) -> list[Span]:
    """A consumer with a step and workers that take turns; with 0 workers it loads by itself."""
    spans = []
    now_s = begin_s + (make_s if count else 0.0)
    free_s = [begin_s + 0.004 * worker for worker in range(count)]
    for batch in range(batches):
        if count == 0:
            ready_s = now_s + make_s
            spans.append(Span("consumer", "load", now_s, ready_s, batch, count))
        else:
            worker = batch % count
            late = 1.6 if batch % 7 == 3 else 1.0
            ready_s = free_s[worker] + make_s * late
            spans.append(Span(f"worker {worker}", "make", free_s[worker], ready_s, batch, count))
            free_s[worker] = max(ready_s, now_s - make_s)
            if ready_s > now_s:
                spans.append(Span("consumer", "wait", now_s, ready_s, batch, count))
        now_s = max(now_s, ready_s)
        spans.append(Span("consumer", "step", now_s, now_s + step_s, batch, count))
        now_s += step_s
    return spans


def train() -> Answer:
    """A loader without workers whose consumer waits most of the time."""
    starts = [
        Span(f"worker {n}", "start", 8.2 + 0.02 * n, 8.4 + 0.03 * n, None, 4) for n in range(4)
    ]
    spans = [
        *timeline(0, 1.2, 14, 0.0397, 0.1173),
        *timeline(2, 5.4, 12, 0.0397, 0.121),
        *starts,
        *timeline(4, 8.5, 30, 0.0397, 0.127),
    ]
    return Answer(
        name="train.py:31",
        loader=LoaderFacts("torch.utils.data.dataloader.DataLoader", 0, 64, 781, False, "2.13.0"),
        consumer="the script's own step",
        site=Site(
            "/home/ada/resnet/train.py",
            31,
            "main",
            "train_loader = DataLoader(train_set, batch_size=64, shuffle=True)",
        ),
        epochs=2,
        batches=412,
        seconds=31.4,
        now_per_s=6.37,
        waiting=0.747,
        step_s=0.0397,
        start_s=0.131,
        bound_per_s=24.4,
        most_gain=3.83,
        rates=(
            rate(0, 6.37, 0.012, 0.131, memory_bytes=0, own=True, cpus_used=0.93),
            rate(1, 8.05, 0.019, 0.29, memory_bytes=212 * MIB, busy_workers=1.0, cpus_used=0.95),
            rate(2, 15.6, 0.031, 0.34, memory_bytes=423 * MIB, busy_workers=1.98, cpus_used=1.87),
            rate(3, 21.9, 0.026, 0.41, memory_bytes=640 * MIB, busy_workers=2.8, cpus_used=2.7),
            rate(4, 24.1, 0.015, 0.46, memory_bytes=858 * MIB, busy_workers=3.1, cpus_used=3.0),
            rate(4, 24.3, 0.011, 0.22, memory_bytes=610 * MIB, engine="stoker"),
            rate(4, 24.2, None, 0.47, memory_bytes=1204 * MIB, prefetch_factor=4),
            rate(6, 24.2, 0.018, 0.63, memory_bytes=1290 * MIB, busy_workers=3.1, cpus_used=3.0),
            rate(8, 23.9, 0.035, 0.81, memory_bytes=1717 * MIB, busy_workers=3.2, cpus_used=3.1),
        ),
        limit=Limit(
            "consumer",
            "With 4 workers the script's own step takes 97 % of the time (39.7 ms of 41 ms a "
            "batch), so no other loader setting can gain more than 1.2 %.",
        ),
        advice=Advice(
            4,
            24.1,
            "4 workers are the fewest within 2 % of the best rate.",
            True,
            (("persistent_workers", "True"),),
            3.78,
        ),
        change=Change(
            "num_workers=4, persistent_workers=True  (now num_workers=0)",
            "/home/ada/resnet/train.py",
            31,
            "train_loader = DataLoader(train_set, batch_size=64, shuffle=True)",
            "train_loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4, "
            "persistent_workers=True)",
        ),
        parts=Parts(0, 0.0397, 0.0, 0.0, 0.1173, 0.1082, 0.0079, 0.0012),
        best_parts=Parts(4, 0.0397, 0.0006, 0.0007, 0.0, 0.1089, 0.0091, 0.0085, 0.0002),
        lines=(
            Line(
                "/home/ada/resnet/data.py",
                48,
                "__getitem__",
                'image = Image.open(self.paths[index]).convert("RGB")',
                0.52,
                1481,
                "PIL.Image.Image.load",
            ),
            Line(
                "/home/ada/resnet/data.py",
                52,
                "__getitem__",
                "image = self.transform(image)",
                0.31,
                883,
                "PIL.Image.Image.resize",
            ),
            Line("/home/ada/resnet/data.py", 55, "__getitem__", "return image, label", 0.06, 171),
            Line("/home/ada/resnet/data.py", 71, "collate", "", 0.04, 114, "torch.stack"),
        ),
        timeline=tuple(sorted(spans, key=lambda span: span.start_s)),
        waits=(
            (0.0001, 214),
            (0.001, 61),
            (0.003, 22),
            (0.01, 17),
            (0.03, 9),
            (0.1, 51),
            (0.3, 37),
            (1.0, 1),
            (3.0, 0),
            (math.inf, 0),
        ),
        remarks=(
            "Each of 3 epochs began with a wait of 460 ms while the workers started; "
            "persistent_workers=True keeps them.",
        ),
        work=Work(0.117, 0.108, 0.0397, 0.0007, 0.21, 214 * MIB, 64 * 150528 * 4, 0.21, 0.013),
    )


def validation() -> Answer:
    """A loader whose setting should stay."""
    return Answer(
        name="train.py:38",
        loader=LoaderFacts("torch.utils.data.dataloader.DataLoader", 2, 256, 40, True, "2.13.0"),
        consumer="the script's own step",
        site=Site(
            "/home/ada/resnet/train.py", 38, "main", "val_loader = DataLoader(val_set, **options)"
        ),
        epochs=2,
        batches=80,
        seconds=6.2,
        now_per_s=12.9,
        waiting=0.011,
        step_s=0.0766,
        start_s=0.51,
        bound_per_s=13.0,
        most_gain=1.01,
        rates=(
            rate(1, 8.2, 0.03, 0.42, memory_bytes=301 * MIB),
            rate(2, 12.9, 0.014, 0.51, memory_bytes=588 * MIB, own=True),
            rate(3, 12.9, 0.022, 0.60, memory_bytes=871 * MIB),
        ),
        limit=Limit("consumer", "The script's own step takes 99 % of the time."),
        advice=Advice(2, 12.9, "2 workers keep the consumer fed; 1 does not.", True, (), 1.0),
        parts=Parts(2, 0.0766, 0.0006, 0.0003, 0.0, 0.118, 0.004, 0.002),
        waits=((0.0001, 71), (0.001, 6), (0.003, 2), (0.03, 1)),
    )


def report(*answers: Answer, **others: object) -> Report:
    """A report about a program; `others` are further fields of `Report`."""
    base = Report(
        command="train.py --epochs 3 --arch resnet18",
        kind="program",
        answers=answers,
        failures=(),
        cpus=CPUS,
        memory=MEMORY,
        software=SOFTWARE,
        elapsed_s=41.3,
        ended="stopped: every loader has an answer",
    )
    return replace(base, **others)  # type: ignore[arg-type]


def program() -> Report:
    """A script with two loaders."""
    return report(train(), validation())


def target() -> Report:
    """One loader that was given as a target, with nothing that needs a program around it."""
    answer = replace(
        train(),
        name="mnist.py:loader",
        consumer="a step of 40 ms",
        site=None,
        change=Change("num_workers=4, persistent_workers=True  (now num_workers=0)"),
        timeline=(),
        waits=(),
        lines=(),
        epochs=0,
    )
    return report(answer, command="mnist.py:loader", kind="target", ended="")


def nothing_to_gain() -> Report:
    """A script whose one loader is as it should be."""
    return report(validation(), command="train.py", exit_code=0, ended="it ran to its end")


FAILURE = Failure(
    "raised",
    4,
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train/0001.jpg'",
    "making batch 17 with 4 workers",
    "a file that the data set lists is not there",
    "remove it from the list, or mend the path",
    'Traceback (most recent call last):\n  File "/home/ada/resnet/data.py", line 48, in '
    "__getitem__\n    image = Image.open(self.paths[index])\nFileNotFoundError: [Errno 2] No such "
    "file or directory: '/data/train/0001.jpg'",
    16,
)


def only_failures() -> Report:
    """A script that ended before any loader could be measured."""
    return report(
        command="train.py", failures=(FAILURE,), ended="ended by an error of its own", exit_code=1
    )


def unmeasured() -> Report:
    """A loader about which nothing but its line is known."""
    answer = Answer(
        name="train.py:31",
        loader=None,
        consumer="",
        limit=Limit("unknown", "It handed out 3 batches before the script ended, too few to tell."),
    )
    return report(answer, failures=(FAILURE,))


HOSTILE = "</script><script>document.title='taken'</script><b>&amp; \" ' \u2028 {{ 7*7 }} %{y} --x"


def hostile() -> Report:
    """Every string that a user or a program could choose, written to break out of a page."""
    base = train()
    assert base.loader
    assert base.advice
    answer = replace(
        base,
        name=HOSTILE,
        consumer=HOSTILE,
        loader=replace(base.loader, kind=HOSTILE, torch=HOSTILE),
        site=Site(HOSTILE, 3, HOSTILE, HOSTILE, HOSTILE),
        limit=Limit("cpu", HOSTILE),
        advice=replace(base.advice, reason=HOSTILE, arguments=((HOSTILE, HOSTILE),)),
        change=Change(HOSTILE, HOSTILE, 3, HOSTILE, HOSTILE),
        lines=(Line(HOSTILE, 1, HOSTILE, HOSTILE, 0.4, 3, HOSTILE),),
        timeline=tuple(
            replace(span, track=f"{span.track}{HOSTILE}", name=HOSTILE) for span in base.timeline
        ),
        remarks=(HOSTILE,),
    )
    texts = ("what", "doing", "likely", "change", "detail")
    return report(
        answer,
        replace(answer, name=f"another {HOSTILE}"),
        command=HOSTILE,
        ended=HOSTILE,
        failures=(Failure("raised", 4, **dict.fromkeys(texts, HOSTILE)),),  # type: ignore[arg-type]
        software=SoftwareFacts(HOSTILE, HOSTILE),
        memory=Fact(2**33, HOSTILE),
    )
