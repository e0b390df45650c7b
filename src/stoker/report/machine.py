"""Tables of the page: the machine, the loader, and what a batch costs. Pure."""

from __future__ import annotations

from stoker.report.drawing import Table
from stoker.report.plain_words import FAR_ABOVE, measured_sentence
from stoker.tuning.answer import Answer, Report, Site
from stoker.tuning.result import LoaderFacts
from stoker.tuning.table import memory
from stoker.tuning.wording import duration, number, percent


def machine_table(report: Report) -> Table:
    """Every fact about the machine with its source."""
    cpus = report.cpus
    rows = [
        ("CPUs this process may use", str(cpus.usable.value), cpus.usable.source),
        ("CPUs of the machine", str(cpus.machine.value), cpus.machine.source),
        ("CPUs in the affinity mask", _or_none(cpus.affinity.value), cpus.affinity.source),
        ("CPU quota", _or_none(cpus.quota.value), cpus.quota.source),
        ("CPUs by a variable", _or_none(cpus.override.value), cpus.override.source),
        ("memory available", memory(report.memory.value), report.memory.source),
        ("Python", report.software.python, "platform.python_version"),
        ("system", report.software.system, "platform"),
    ]
    versions = dict.fromkeys(each.loader.torch for each in report.answers if each.loader)
    rows += [("PyTorch", version, "torch.__version__") for version in versions]
    return Table(("", "value", "who says so"), tuple(rows))


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def loader_table(answer: Answer) -> Table:
    """The loader as it is now, and what was watched of it."""
    rows = [
        *(_site_rows(answer.site, answer.made) if answer.site else []),
        *(_setting_rows(answer.loader) if answer.loader else []),
        ("who used the batches", answer.consumer),
        ("watched", measured_sentence(answer)),
        ("the training's own time for a batch", _duration(answer.step_s)),
        ("from iter(loader) to the first batch", _duration(answer.start_s)),
        ("most that any loader setting could gain", _most(answer.most_gain)),
    ]
    return Table(("", "value"), tuple(row for row in rows if row[1]))


def _most(gain: float | None) -> str:
    far = gain is not None and gain > FAR_ABOVE
    return f"more than {FAR_ABOVE:g} times" if far else _times(gain)


def _site_rows(site: Site, made: int) -> list[tuple[str, str]]:
    through = f", through {site.library}" if site.library else ""
    return [
        ("made in", f"{site.file}, line {site.line}, {site.function}{through}"),
        ("by", site.code),
        ("made there", "once" if made == 1 else f"{made:,} times"),
    ]


def _setting_rows(loader: LoaderFacts) -> list[tuple[str, str]]:
    chosen = " (chosen by the loader)" if loader.automatic else ""
    size, length = loader.batch_size, loader.epoch_batches
    return [
        ("class", loader.kind),
        ("num_workers", f"{loader.num_workers}{chosen}"),
        ("batch_size", "" if size is None else f"{size:,}"),
        ("batches an epoch", "" if length is None else f"{length:,}"),
        ("persistent_workers", str(loader.persistent_workers)),
    ]


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f} times the speed of now"


def cost_table(answer: Answer) -> Table | None:
    """What a batch costs, as ``stoker simulate`` takes it; None when not measured."""
    work = answer.work
    if work is None:
        return None
    doubt = f"{duration(work.service_s)} ± {percent(work.doubt)}"
    own = "" if work.worker_bytes is None else memory(work.worker_bytes)
    rows = [
        ("making a batch, with a CPU at hand", doubt),
        ("of that, on a CPU", duration(work.cpu_s)),
        ("differs from batch to batch by", percent(work.spread)),
        ("the training's own time for a batch", duration(work.step_s)),
        ("receiving a batch", duration(work.handling_s)),
        ("starting a worker", duration(work.start_s)),
        ("memory of a worker", own),
        ("size of a batch", memory(work.batch_bytes) if work.batch_bytes else ""),
        (
            "workers that would keep the training fed",
            _closed_form(work.service_s, work.step_s),
        ),
    ]
    return Table(("", "value"), tuple(row for row in rows if row[1]))


def _closed_form(service_s: float, step_s: float) -> str:
    return number(service_s / step_s) if step_s > 0 else ""
