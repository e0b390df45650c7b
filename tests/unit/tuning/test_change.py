from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.answer import Advice, Change, Site
from stoker.tuning.change import change_for
from stoker.tuning.loader_call import ORDER
from stoker.tuning.result import LoaderFacts

PERSISTENT = (("persistent_workers", "True"),)


def facts(num_workers: int = 0, batch_size: int | None = None, **more: bool) -> LoaderFacts:
    return LoaderFacts(
        "torch.utils.data.DataLoader",
        num_workers,
        batch_size,
        None,
        more.get("persistent_workers", False),
        "2.8",
        more.get("automatic", False),
    )


def change(
    source: str,
    workers: int = 4,
    *,
    now: LoaderFacts | None = None,
    arguments: tuple[tuple[str, str], ...] = (),
    line: int | None = None,
    library: str = "",
) -> Change | None:
    if line is None:
        lines = source.splitlines()
        line = next((at for at, text in enumerate(lines, 1) if "oader(" in text), 1)
    site = Site("train.py", line, "main", "", library)
    return change_for(site, now or facts(), Advice(workers, 10.0, "", True, arguments), source)


def applied(source: str, found: Change) -> str:
    """The source with the change made."""
    before = source.split("\n")
    lines = found.before.split("\n")
    at = found.line - 1
    assert before[at : at + len(lines)] == lines
    return "\n".join([*before[:at], *found.after.split("\n"), *before[at + len(lines) :]])


def keywords(source: str, name: str = "DataLoader") -> dict[str | None, str]:
    """The arguments of the only call of this name."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)
    ]
    by_place = {ORDER[at]: ast.unparse(arg) for at, arg in enumerate(calls[0].args)}
    return by_place | {k.arg: ast.unparse(k.value) for k in calls[0].keywords}


SHAPES = {
    "missing": ("DataLoader(ds, batch_size=4)", "DataLoader(ds, batch_size=4, num_workers=4)"),
    "a literal": ("DataLoader(ds, num_workers=0)", "DataLoader(ds, num_workers=4)"),
    "spaces": ("DataLoader(ds, num_workers = 0 )", "DataLoader(ds, num_workers = 4 )"),
    "by position": (
        "DataLoader(ds, 4, True, None, None, 0)",
        "DataLoader(ds, 4, True, None, None, 4)",
    ),
    "a trailing comma": ("DataLoader(ds, 4,)", "DataLoader(ds, 4, num_workers=4,)"),
    "nothing": ("DataLoader()", "DataLoader(num_workers=4)"),
    "parentheses": ("DataLoader((ds))", "DataLoader((ds), num_workers=4)"),
    "a string": ("DataLoader(read(') # ('), 4)", "DataLoader(read(') # ('), 4, num_workers=4)"),
    "a comment": ("DataLoader(ds)  # all (of it)", "DataLoader(ds, num_workers=4)  # all (of it)"),
    "with parentheses": ("DataLoader(ds, num_workers=(0))", "DataLoader(ds, num_workers=(4))"),
    "other letters": ("DataLoader(read('żółw'), 4)", "DataLoader(read('żółw'), 4, num_workers=4)"),
    "a full name": (
        "torch.utils.data.DataLoader(ds, 4)",
        "torch.utils.data.DataLoader(ds, 4, num_workers=4)",
    ),
    "in a call": (
        "Fast(DataLoader(ds, 4), 'cuda')",
        "Fast(DataLoader(ds, 4, num_workers=4), 'cuda')",
    ),
    "of the machine": (
        "DataLoader(ds, num_workers=min(8, os.cpu_count()))",
        "DataLoader(ds, num_workers=4)",
    ),
    "in a comprehension": (
        "[DataLoader(d, 4) for d in sets]",
        "[DataLoader(d, 4, num_workers=4) for d in sets]",
    ),
}


@pytest.mark.parametrize(("before", "after"), SHAPES.values(), ids=SHAPES.keys())
def test_shapes_of_calls(before: str, after: str) -> None:
    source = f"import os\n\nloader = {before}\nfor batch in loader:\n    train(batch)\n"
    found = change(source)
    assert found is not None
    assert (found.line, found.before, found.after) == (3, f"loader = {before}", f"loader = {after}")
    assert found.text == "num_workers=4  (now num_workers=0)"
    assert keywords(applied(source, found))["num_workers"] in ("4", "(4)")


SPREAD = """\
def main():
    loader = DataLoader(
        Pictures(")"),  # the (small) set
        batch_size=4,
        num_workers=2,  # as many as (or more than)
        persistent_workers=True,
        prefetch_factor=4,
        shuffle=True,
    )
"""


def test_a_call_over_many_lines_changes_the_line_with_the_keyword() -> None:
    found = change(SPREAD, now=facts(2, persistent_workers=True))
    assert found is not None
    assert found.line == 5
    assert found.before == "        num_workers=2,  # as many as (or more than)"
    assert found.after == "        num_workers=4,  # as many as (or more than)"


def test_a_call_over_many_lines_gets_a_keyword_after_its_last_argument() -> None:
    source = "x = DataLoader(\n    ds,  # a\n    batch_size=4,  # b\n)\n"
    found = change(source, arguments=PERSISTENT)
    assert found is not None
    assert found.line == 3
    assert found.after == "    batch_size=4, num_workers=4, persistent_workers=True,  # b"


def test_without_workers_what_torch_refuses_then_goes_too() -> None:
    found = change(SPREAD, 0, now=facts(2, persistent_workers=True))
    assert found is not None
    told = keywords(applied(SPREAD, found))
    assert told["num_workers"] == "0"
    assert not {"persistent_workers", "prefetch_factor"} & {*told}
    assert told["shuffle"] == "True"
    assert found.text == (
        "num_workers=0 without prefetch_factor, persistent_workers  (now num_workers=2)"
    )
    assert applied(SPREAD, found).count("\n") == SPREAD.count("\n") - 2


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("DataLoader(d, num_workers=2, timeout=5)", "DataLoader(d, num_workers=0)"),
        ("DataLoader(d, timeout=5, num_workers=2)", "DataLoader(d, num_workers=0)"),
        (
            "DataLoader(d, timeout=0, num_workers=2, prefetch_factor=3,)",
            "DataLoader(d, timeout=0, num_workers=0,)",
        ),
    ],
)
def test_without_workers_on_one_line(call: str, after: str) -> None:
    found = change(f"x = {call}", 0, now=facts(2))
    assert found is not None
    assert found.after == f"x = {after}"


ARGPARSE = """\
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--data-workers", type=int, default=2)
parser.add_argument("--lr", type=float)
args = parser.parse_args()
loader = DataLoader(ds, num_workers=args.data_workers)
"""


def test_an_option_of_the_script_is_named() -> None:
    found = change(ARGPARSE, now=facts(2))
    assert found == Change("--data-workers 4  (now 2)", "train.py", 5)


def test_an_option_by_its_dest() -> None:
    source = ARGPARSE.replace("type=int", 'dest="n"').replace("args.data_workers", "args.n")
    found = change(source, now=facts(2))
    assert found is not None
    assert found.text == "--data-workers 4  (now 2)"


def test_other_arguments_are_written_beside_an_option() -> None:
    found = change(ARGPARSE, now=facts(2), arguments=PERSISTENT)
    assert found is not None
    assert found.text == "--data-workers 4  (now 2), and persistent_workers=True"
    assert keywords(applied(ARGPARSE, found)) == {
        "dataset": "ds",
        "num_workers": "args.data_workers",
        "persistent_workers": "True",
    }


@pytest.mark.parametrize("value", ["args.workers", "WORKERS", "cfg['workers']", "cfg.get('n', 2)"])
def test_a_number_from_elsewhere_is_not_rewritten(value: str) -> None:
    found = change(f"x = DataLoader(ds, num_workers={value})", now=facts(2))
    assert found == Change(f"pass 4 for {value}  (now 2)", "train.py", 1)


def test_nothing_to_change_is_none() -> None:
    assert change("x = DataLoader(ds, num_workers=4)", now=facts(4)) is None
    assert change("x = DataLoader(ds)", 0, now=facts(0)) is None
    kept = facts(4, persistent_workers=True)
    assert change("x = make(ds)", now=kept, arguments=PERSISTENT) is None
    source = "x = DataLoader(ds, num_workers=4, pin_memory=True)"
    assert change(source, now=facts(4), arguments=(("pin_memory", "True"),)) is None


def test_a_number_that_the_call_does_not_explain_is_told_and_not_rewritten() -> None:
    found = change("x = FastLoader(ds, num_workers=4)", now=facts(2))
    assert found == Change("num_workers=4  (now num_workers=2)", "train.py", 1)


def test_arguments_that_must_go_are_told_where_they_cannot_be_rewritten() -> None:
    found = change("x = make(ds)", 0, now=facts(2, persistent_workers=True))
    assert found is not None
    assert found.text == "num_workers=0 without persistent_workers  (now num_workers=2)"
    by_place = "x = DataLoader(d, 4, False, None, None, 2, None, False, False, 5)"
    found = change(by_place, 0, now=facts(2))
    assert found is not None
    assert (found.text, found.after) == ("num_workers=0 without timeout  (now num_workers=2)", "")


def test_a_loader_that_chooses_its_number_keeps_doing_so() -> None:
    assert change("x = DataLoader(ds)", now=facts(2, automatic=True)) is None


@pytest.mark.parametrize("call", ["DataLoader(ds, **kwargs)", "DataLoader(*args)"])
def test_what_may_hide_the_keyword_is_left_alone(call: str) -> None:
    found = change(f"x = {call}")
    assert found == Change("num_workers=4  (now num_workers=0)", "train.py", 1)


def test_a_call_of_another_name_gets_no_keyword_it_may_not_know() -> None:
    assert change("x = make_loader(ds)") == Change(
        "num_workers=4  (now num_workers=0)", "train.py", 1
    )
    held = change("x = FastLoader(ds, num_workers=0)")
    assert held is not None
    assert held.after == "x = FastLoader(ds, num_workers=4)"
    more = change("x = FastLoader(ds, num_workers=0)", arguments=PERSISTENT)
    assert more is not None
    assert (more.text, more.after) == (
        "num_workers=4, persistent_workers=True  (now num_workers=0)",
        "",
    )


def test_an_imported_alias_is_the_loader() -> None:
    source = "from torch.utils.data import DataLoader as DL\nx = DL(ds)\n"
    found = change(source, line=2)
    assert found is not None
    assert found.after == "x = DL(ds, num_workers=4)"


def test_two_loaders_on_a_line_are_told_apart_or_left_alone() -> None:
    source = "a, b = DataLoader(x, 8, num_workers=2), DataLoader(y, 8)"
    found = change(source, now=facts(0, batch_size=8))
    assert found is not None
    assert found.after == "a, b = DataLoader(x, 8, num_workers=2), DataLoader(y, 8, num_workers=4)"
    alike = change("a, b = DataLoader(x), DataLoader(y)")
    assert alike is not None
    assert alike.after == ""


@pytest.mark.parametrize("source", ["", "%matplotlib inline\nx = DataLoader(ds)", "x = (", "\0"])
def test_source_that_cannot_be_read_still_has_its_text(source: str) -> None:
    found = change(source)
    assert found is not None
    assert (found.text, found.after) == ("num_workers=4  (now num_workers=0)", "")


TRAINER = textwrap.dedent("""\
    trainer = Trainer(
        model,
        args=TrainingArguments(
            "out",
            dataloader_num_workers=0,
        ),
    )
    trainer.train()
    """)


def test_transformers_arguments_are_rewritten() -> None:
    found = change(TRAINER, line=8, library="transformers", arguments=PERSISTENT)
    assert found is not None
    assert found.line == 5
    assert found.after.strip() == ("dataloader_num_workers=4, dataloader_persistent_workers=True,")
    assert found.text == (
        "TrainingArguments(dataloader_num_workers=4, dataloader_persistent_workers=True)"
        "  (now dataloader_num_workers=0)"
    )


def test_transformers_arguments_from_the_command_line() -> None:
    source = "args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    found = change(source, library="transformers", arguments=PERSISTENT)
    assert found is not None
    assert found.text == (
        "--dataloader_num_workers 4 --dataloader_persistent_workers True"
        "  (now dataloader_num_workers=0)"
    )


def test_a_library_that_takes_the_users_own_loader() -> None:
    source = "loader = DataLoader(ds)\nfit(model)\n"
    found = change(source, line=2, library="lightning")
    assert found is not None
    assert (found.line, found.after) == (1, "loader = DataLoader(ds, num_workers=4)")


def test_windows_ends_of_lines() -> None:
    source = "a = 1\r\nx = DataLoader(\r\n    ds,\r\n    timeout=5,\r\n    num_workers=2,\r\n)\r\n"
    found = change(source, 0, now=facts(2), line=2)
    assert found is not None
    assert found.line == 4
    assert "timeout" not in found.after
    assert "num_workers=0" in found.after


arguments = st.lists(
    st.sampled_from(
        [
            "batch_size=4",
            "batch_size=f(1, (2, 3))",
            "num_workers=2",
            "num_workers=args.n",
            "num_workers=os.cpu_count()",
            "pin_memory=True",
            "prefetch_factor=2",
            "prefetch_factor=args.p or 2",
            "persistent_workers=True",
            "persistent_workers=args.n > 0",
            "timeout=(5)",
            "shuffle=')' != \"(\"",
            "collate_fn=lambda batch: batch",
            "**kwargs",
        ]
    ),
    unique_by=lambda text: text.partition("=")[0],
)
gaps = st.sampled_from(["", " ", "\n    ", "  # a (comment),\n    "])


@given(
    st.sampled_from(["DataLoader", "torch.utils.data.DataLoader", "data . DataLoader"]),
    st.sampled_from(["ds", "(ds)", "Data('),(')", "DataLoader(y)", "*ds", "[x for x in y]"]),
    arguments,
    st.lists(gaps, min_size=20, max_size=20),
    st.booleans(),
    st.sampled_from(["x = {}", "x = f({}, 'é)')", "use('ü', {})  # (", "if a:\n  x = [{}]"]),
    st.sampled_from([0, 4]),
    st.sampled_from([(), PERSISTENT, (("prefetch_factor", "4"), ("pin_memory", "False"))]),
)
def test_what_is_offered_is_exactly_what_was_wanted(
    name: str,
    data: str,
    given_: list[str],
    gaps: list[str],
    trailing: bool,
    around: str,
    workers: int,
    wished: tuple[tuple[str, str], ...],
) -> None:
    parts = [data, *given_]
    inside = ",".join(f"{gap}{part}" for gap, part in zip(gaps, parts, strict=False))
    comma = "," if trailing else ""
    source = around.format(f"{name}({inside}{gaps[-2]}{comma}{gaps[-1]})") + "\n"
    ast.parse(source)
    line = source.split("\n").index(next(t for t in source.split("\n") if name in t)) + 1
    own = 2 if any(part.startswith("num_workers") for part in given_) else 0
    batch_size = None if any("f(1" in part for part in given_) else 4
    held = facts(own, batch_size, persistent_workers="persistent_workers=True" in given_)
    found = change(source, workers, now=held, arguments=wished, line=line)
    if found is None or not found.after:
        return
    old, new = (_outer(text, name) for text in (source, applied(source, found)))
    expected = dict(old)
    if old.get("num_workers") != "args.n" and workers != own:
        expected["num_workers"] = str(workers)
    if workers == 0 and own != 0:
        for gone in ("prefetch_factor", "persistent_workers", "timeout"):
            expected.pop(gone, None)
    expected |= {n: v for n, v in wished if workers or n == "pin_memory"}
    assert new == expected


def _outer(source: str, name: str) -> dict[str | None, str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    call = next(c for c in calls if ast.unparse(c.func) == name.replace(" ", ""))
    return {k.arg: ast.unparse(k.value) for k in call.keywords}
