"""The one change that brings the gain, in the user's own source where that can be. Pure.

A number that the call itself holds is rewritten. One that comes from elsewhere is not: then the
text says what to pass, by the name of the script's own option where it defines one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from stoker.tuning.answer import Advice, Change, Site
from stoker.tuning.calls import Edited, Source, argument, changed
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
NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
"""Arguments that torch refuses without workers."""
_OF_ARGUMENTS = {
    name: f"dataloader_{name}"
    for name in ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory")
}
"""Names of the same settings in transformers' ``TrainingArguments``."""
_COUNTS_CPUS = {"cpu_count", "process_cpu_count", "sched_getaffinity"}


def change_for(site: Site, facts: LoaderFacts, advice: Advice, source: str) -> Change | None:
    """The change that turns a loader's setting into the recommended one.

    Args:
        site: The line that made it.
        facts: Its setting.
        advice: The recommended one.
        source: Text of the site's file; empty where it can't be read.

    Returns:
        The change, with the lines before and after it where they can be rewritten so that the
        result is sure to be right; None where nothing is to change.
    """
    wanted = _wanted(facts, advice)
    try:
        parsed = Source(source)
    except SyntaxError:
        parsed = Source("")
    if site.library == "transformers":
        named = {_OF_ARGUMENTS[name]: v for name, v in wanted.items() if name in _OF_ARGUMENTS}
        return _change(site, facts, parsed, _training_arguments(parsed), named, ())
    return _change(site, facts, parsed, _loader_call(parsed, site, facts), wanted, ORDER)


def _wanted(facts: LoaderFacts, advice: Advice) -> dict[str, str]:
    """Source of each argument that should be other than it is; "" for one that must go."""
    wanted = {}
    if advice.num_workers != facts.num_workers and not facts.automatic:
        wanted["num_workers"] = str(advice.num_workers)
    count = facts.num_workers if facts.automatic else advice.num_workers
    for name, value in advice.arguments:
        kept = name == "persistent_workers" and value == str(facts.persistent_workers)
        if not kept and name != "num_workers" and (count or name not in NEED_WORKERS):
            wanted[name] = value
    if wanted.get("num_workers") == "0":
        wanted |= dict.fromkeys(NEED_WORKERS, "")
    return wanted


def _change(
    site: Site,
    facts: LoaderFacts,
    source: Source,
    call: ast.Call | None,
    wanted: dict[str, str],
    order: Sequence[str],
) -> Change | None:
    if call is not None:
        wanted = {name: v for name, v in wanted.items() if _differs(call, name, v, order)}
    if not any(wanted.values()) and (call is None or not wanted):
        return None
    counted = next((name for name in wanted if name.endswith("num_workers")), None)
    elsewhere = _elsewhere(source, call, counted, wanted, order) if counted else ""
    rest = {name: v for name, v in wanted.items() if not (elsewhere and name == counted)}
    known = rest if call is None or _is_loader(source, call) or not order else _held(call, rest)
    edited = changed(source, call, known, order) if call is not None and known == rest else None
    text = _text(facts, rest, call, elsewhere, counted)
    if site.library == "transformers" and not elsewhere:
        text = _of_trainer(source, call, text, facts)
    return _with(text, site, edited)


def _with(text: str, site: Site, edited: Edited | None) -> Change:
    if edited is None:
        return Change(text, site.file, site.line)
    return Change(text, site.file, edited.line, edited.before, edited.after)


def _differs(call: ast.Call, name: str, value: str, order: Sequence[str]) -> bool:
    there = argument(call, name, order)
    if not value:
        return there is not None and not _is_off(there)
    return there is None or ast.unparse(there) != ast.unparse(ast.parse(value, mode="eval").body)


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _held(call: ast.Call, wanted: Mapping[str, str]) -> dict[str, str]:
    """What a call that is no loader's own can be given: it may know no other names."""
    names = {keyword.arg for keyword in call.keywords}
    return {name: value for name, value in wanted.items() if name in names}


# Which call -------------------------------------------------------------------------------------


def _loader_call(source: Source, site: Site, facts: LoaderFacts) -> ast.Call | None:
    """The call that made the loader; None where it isn't there, or can't be told from others."""
    here = list(source.calls(site.line))
    loaders = [call for call in here if _is_loader(source, call)]
    if not loaders and site.library:
        loaders = [call for call in source.calls() if _is_loader(source, call)]
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


def _is_loader(source: Source, call: ast.Call) -> bool:
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


def _training_arguments(source: Source) -> ast.Call | None:
    found = [call for call in source.calls() if _name(call.func).endswith("TrainingArguments")]
    return found[0] if len(found) == 1 else None


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


# Where the number comes from --------------------------------------------------------------------


def _elsewhere(
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
        isinstance(node, ast.Call) and _name(node.func) in _COUNTS_CPUS for node in ast.walk(value)
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
        if _name(call.func) != function:
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


# In words ---------------------------------------------------------------------------------------


def _text(
    facts: LoaderFacts,
    rest: Mapping[str, str],
    call: ast.Call | None,
    elsewhere: str,
    counted: str | None,
) -> str:
    given = ", ".join(f"{name}={value}" for name, value in rest.items() if value)
    there = {keyword.arg for keyword in call.keywords} if call else {*NEED_WORKERS}
    gone = [name for name, value in rest.items() if not value and name in there]
    without = f"without {', '.join(gone)}" if gone and call is not None else ""
    now = f"now {facts.num_workers}" if elsewhere else f"now {counted}={facts.num_workers}"
    if elsewhere:
        more = ", and ".join(part for part in (given, without) if part)
        return f"{elsewhere}  ({now})" + (f", and {more}" if more else "")
    told = " ".join(part for part in (given, without) if part)
    return f"{told}  ({now})" if counted else told


def _of_trainer(source: Source, call: ast.Call | None, text: str, facts: LoaderFacts) -> str:
    """The same for ``TrainingArguments``: by its options where the command line makes it."""
    told, gap, now = text.partition("  ")
    parser = any(_name(one.func) == "HfArgumentParser" for one in source.calls())
    if call is None and parser:
        told = " ".join(f"--{part.replace('=', ' ')}" for part in told.split(", "))
        return f"{told}{gap}{now}"
    return f"TrainingArguments({told}){gap}{now}"
