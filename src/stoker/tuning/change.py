"""The one change that brings the gain, in the user's own source where that can be. Pure.

A number that the call itself holds is rewritten. One that comes from elsewhere is not: then the
text says what to pass, by the name of the script's own option where it defines one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from stoker.tuning.answer import Advice, Change, Site
from stoker.tuning.calls import Edited, Source, argument, changed
from stoker.tuning.loader_call import (
    ORDER,
    elsewhere,
    is_loader,
    loader_call,
    name_of,
    training_arguments,
)
from stoker.tuning.result import LoaderFacts

NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
"""Arguments that torch refuses without workers."""
_OF_ARGUMENTS = {
    name: f"dataloader_{name}"
    for name in ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory")
}
"""Names of the same settings in transformers' ``TrainingArguments``."""


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
        return _change(site, facts, parsed, training_arguments(parsed), named, ())
    return _change(site, facts, parsed, loader_call(parsed, site, facts), wanted, ORDER)


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
    passed = elsewhere(source, call, counted, wanted, order) if counted else ""
    rest = {name: v for name, v in wanted.items() if not (passed and name == counted)}
    known = rest if call is None or is_loader(source, call) or not order else _held(call, rest)
    edited = changed(source, call, known, order) if call is not None and known == rest else None
    text = _text(facts, rest, call, passed, counted)
    if site.library == "transformers" and not passed:
        text = _of_trainer(source, call, text, facts)
    return _with(text, site, edited)


def _with(text: str, site: Site, edited: Edited | None) -> Change:
    if edited is None or edited.before == edited.after:
        return Change(text, site.file, site.line)
    return Change(text, site.file, edited.line, edited.before, edited.after)


def _differs(call: ast.Call, name: str, value: str, order: Sequence[str]) -> bool:
    there = argument(call, name, order)
    if name.endswith("num_workers"):  # it is known to be another, whatever the call says
        return True
    if not value:
        return there is not None and not _is_off(there)
    return there is None or ast.unparse(there) != ast.unparse(ast.parse(value, mode="eval").body)


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _held(call: ast.Call, wanted: Mapping[str, str]) -> dict[str, str]:
    """What a call that is no loader's own can be given: it may know no other names."""
    names = {keyword.arg for keyword in call.keywords}
    return {name: value for name, value in wanted.items() if name in names}


def _text(
    facts: LoaderFacts,
    rest: Mapping[str, str],
    call: ast.Call | None,
    passed: str,
    counted: str | None,
) -> str:
    given = ", ".join(f"{name}={value}" for name, value in rest.items() if value)
    gone = [name for name, value in rest.items() if not value]
    if call is None:  # what else it was given is not known
        gone = ["persistent_workers"] if gone and facts.persistent_workers else []
    without = f"without {', '.join(gone)}" if gone else ""
    now = f"now {facts.num_workers}" if passed else f"now {counted}={facts.num_workers}"
    if passed:
        more = ", and ".join(part for part in (given, without) if part)
        return f"{passed}  ({now})" + (f", and {more}" if more else "")
    told = " ".join(part for part in (given, without) if part)
    return f"{told}  ({now})" if counted else told


def _of_trainer(source: Source, call: ast.Call | None, text: str, facts: LoaderFacts) -> str:
    """The same for ``TrainingArguments``: by its options where the command line makes it."""
    told, gap, now = text.partition("  ")
    parser = any(name_of(one.func) == "HfArgumentParser" for one in source.calls())
    if call is None and parser:
        told = " ".join(f"--{part.replace('=', ' ')}" for part in told.split(", "))
        return f"{told}{gap}{now}"
    return f"TrainingArguments({told}){gap}{now}"
