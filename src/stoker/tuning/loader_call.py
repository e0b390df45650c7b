"""Which call in a file made a loader, and where the number of workers in it comes from. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from stoker.tuning.answer import Site
from stoker.tuning.calls import Source, argument
from stoker.tuning.result import LoaderFacts

ORDER = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
"""Parameters of torch's ``DataLoader`` that may be given by position."""
_COUNTS_CPUS = {"cpu_count", "process_cpu_count", "sched_getaffinity"}


def loader_call(source: Source, site: Site, facts: LoaderFacts) -> ast.Call | None:
    """The call that made the loader; None where it isn't there, or can't be told from others."""
    here = list(source.calls(site.line))
    loaders = [call for call in here if is_loader(source, call)]
    if not loaders and site.library:
        loaders = [call for call in source.calls() if is_loader(source, call)]
    if loaders:
        return _the_one(loaders, site, facts)
    holding = [call for call in here if argument(call, "num_workers") is not None]
    return _the_one(holding, site, facts)


def _the_one(calls: Sequence[ast.Call], site: Site, facts: LoaderFacts) -> ast.Call | None:
    if len(calls) > 1:
        calls = [call for call in calls if _fits(call, facts)]
    if len(calls) > 1:
        calls = [call for call in calls if call.lineno == site.line]
    return calls[0] if len(calls) == 1 else None


def _fits(call: ast.Call, facts: LoaderFacts) -> bool:
    """Whether this call could have made that loader, as far as its literals tell."""
    for name, value, default in (
        ("num_workers", facts.num_workers, 0),
        ("batch_size", facts.batch_size, 1),
    ):
        node = argument(call, name, ORDER)
        if node is None and not any(k.arg is None for k in call.keywords) and value is not None:
            if value != default:
                return False
        elif isinstance(node, ast.Constant) and node.value != value:
            return False
    return True


def is_loader(source: Source, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "DataLoader"
    if not isinstance(call.func, ast.Name):
        return False
    if call.func.id == "DataLoader":
        return True
    return any(
        alias.name == "DataLoader" and alias.asname == call.func.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def training_arguments(source: Source) -> ast.Call | None:
    found = [call for call in source.calls() if name_of(call.func).endswith("TrainingArguments")]
    return found[0] if len(found) == 1 else None


def name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def elsewhere(
    source: Source,
    call: ast.Call | None,
    counted: str,
    wanted: Mapping[str, str],
    order: Sequence[str],
) -> str:
    """What to pass where the number comes from outside the call; "" where it is the call's own."""
    value = None if call is None else argument(call, counted, order)
    if value is None or isinstance(value, ast.Constant) or _of_cpus(value):
        return ""
    option = _option(source, value)
    if option:
        return f"{option} {wanted[counted]}"
    return f"pass {wanted[counted]} for {source.told(value)}"


def _of_cpus(value: ast.expr) -> bool:
    """Whether an expression takes the number from the machine."""
    return any(
        isinstance(node, ast.Call) and name_of(node.func) in _COUNTS_CPUS
        for node in ast.walk(value)
    )


def _option(source: Source, value: ast.expr) -> str:
    """The option of the script's command line that gives a value: "--workers"; else ""."""
    if isinstance(value, ast.Attribute):
        return _defined(source, "add_argument", value.attr)
    if isinstance(value, ast.Name):
        return _defined(source, "option", value.id)
    return ""


def _defined(source: Source, function: str, name: str) -> str:
    for call in source.calls():
        if name_of(call.func) != function:
            continue
        flags = list(_flags(call))
        dest = argument(call, "dest")
        if isinstance(dest, ast.Constant):
            names = [dest.value]
        else:
            names = [flag.lstrip("-").replace("-", "_") for flag in flags]
        if flags and name in names:
            return next((flag for flag in flags if flag.startswith("--")), flags[0])
    return ""


def _flags(call: ast.Call) -> Iterator[str]:
    for arg in call.args:
        flag = arg.value if isinstance(arg, ast.Constant) else None
        if isinstance(flag, str) and flag.startswith("-"):
            yield flag
