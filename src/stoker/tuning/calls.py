"""Calls in Python source: found, and changed without touching what stands around. Pure.

A change is made to the text and then parsed: what does not give exactly the wanted keywords is
not offered.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_QUIET = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class Edited:
    """Whole lines of a file, before and after a change; neither ends with a newline.

    Attributes:
        line: The first of them, from 1.
        before: The lines as they are.
        after: The lines that take their place.
    """

    line: int
    before: str
    after: str


class Source:
    """A parsed file; positions in it are offsets into its text, in characters."""

    def __init__(self, text: str) -> None:
        """Parses it.

        Raises:
            SyntaxError: It is no Python; also for what `ast` or `tokenize` can't read.
        """
        self.text = text
        try:
            self.tree = ast.parse(text)
            tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
        except (ValueError, RecursionError, tokenize.TokenError) as exc:
            raise SyntaxError(str(exc)) from exc
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._tokens = [
            (self._starts[t.start[0] - 1] + t.start[1], self._starts[t.end[0] - 1] + t.end[1], t)
            for t in tokens
            if t.type not in _QUIET and t.type != tokenize.ENDMARKER
        ]

    def calls(self, line: int | None = None) -> Iterator[ast.Call]:
        """All calls, or those that span a line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                last = node.end_lineno or node.lineno
                if line is None or node.lineno <= line <= last:
                    yield node

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Where a node's text begins and ends."""
        end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._at(node.lineno, node.col_offset), self._at(end_line, end_col)

    def told(self, node: ast.expr) -> str:
        """A node's source, on one line."""
        return " ".join(ast.unparse(node).split())

    def _at(self, line: int, byte: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:byte].decode(errors="ignore"))

    def line_at(self, at: int) -> int:
        """The line, from 1, that an offset is in."""
        return next(n for n, start in enumerate(self._starts[1:], 1) if at < start)

    def tokens(self, begin: int, end: int) -> list[tuple[int, int, str]]:
        """What stands between two offsets, comments and newlines left out."""
        return [(a, b, t.string) for a, b, t in self._tokens if begin <= a and b <= end]


@dataclass(frozen=True)
class _Edit:
    begin: int
    end: int
    text: str


def changed(
    source: Source, call: ast.Call, wanted: Mapping[str, str], order: Sequence[str | None]
) -> Edited | None:
    """The lines of a call with these keywords set; None where that can't be done safely.

    Args:
        source: The file.
        call: One of its calls.
        wanted: Source of the value for each keyword; "" takes the keyword away.
        order: Names of the positional parameters, for arguments that are given by position.
    """
    if any(keyword.arg is None for keyword in call.keywords):
        there = {keyword.arg for keyword in call.keywords}
        if any(value and name not in there for name, value in wanted.items()):
            return None  # it may be in there: given twice it is an error
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    edits = _edits(source, call, wanted, order)
    if edits is None or not edits:
        return None
    text = source.text
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        text = text[: edit.begin] + edit.text + text[edit.end :]
    if not _is_so(text, call, wanted, order):
        return None
    return _lines(source, edits)


def _edits(
    source: Source, call: ast.Call, wanted: Mapping[str, str], order: Sequence[str | None]
) -> list[_Edit] | None:
    edits, new = [], []
    for name, value in wanted.items():
        node = argument(call, name, order)
        if node is None:
            new += [f"{name}={value}"] if value else []
        elif value:
            edits.append(_Edit(*source.span(node), value))
        else:
            keyword = next((k for k in call.keywords if k.arg == name), None)
            if keyword is None:
                return None
            edits.append(_removal(source, call, keyword))
    if new:
        edits.append(_insertion(source, call, wanted, new))
    ranked = sorted(edits, key=lambda edit: edit.begin)
    overlap = any(one.end > two.begin for one, two in pairwise(ranked))
    return None if overlap else edits


def argument(call: ast.Call, name: str, order: Sequence[str | None] = ()) -> ast.expr | None:
    """The value that a call gives for a parameter, by name or by position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if name in order and order.index(name) < len(call.args):
        return call.args[order.index(name)]
    return None


def _insertion(
    source: Source, call: ast.Call, wanted: Mapping[str, str], new: Sequence[str]
) -> _Edit:
    """After the last keyword that is changed anyway, or else before the closing parenthesis."""
    beside = [k for k in call.keywords if k.arg is not None and wanted.get(k.arg)]
    if beside:
        at = max(source.span(keyword)[1] for keyword in beside)
        return _Edit(at, at, "".join(f", {one}" for one in new))
    close = source.span(call)[1] - 1
    _, at, last = source.tokens(source.span(call.func)[1], close)[-1]
    text = ", ".join(new)
    if last == "(" and not call.args and not call.keywords:
        return _Edit(at, at, text)
    return _Edit(at, at, f" {text}," if last == "," else f", {text}")


def _removal(source: Source, call: ast.Call, keyword: ast.keyword) -> _Edit:
    """A keyword, its comma, and the line that it leaves empty."""
    begin, end = source.span(keyword)
    close = source.span(call)[1] - 1
    after = source.tokens(end, close)
    text = source.text
    if after and after[0][2] == ",":
        end = after[0][1]
        while end < len(text) and text[end] in " \t":
            end += 1
    else:
        before = source.tokens(source.span(call.func)[1], begin)
        if before and before[-1][2] == ",":
            return _Edit(before[-1][0], end, "")
    start = begin
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    alone = start == 0 or text[start - 1] in "\r\n"
    if alone and text[end : end + 1] in ("\r", "\n"):
        return _Edit(start, end + (2 if text[end : end + 2] == "\r\n" else 1), "")
    return _Edit(start if text[end : end + 1] == ")" and not alone else begin, end, "")


def _is_so(
    text: str, old: ast.Call, wanted: Mapping[str, str], order: Sequence[str | None]
) -> bool:
    """Whether the changed text has the call, with what was wanted and otherwise as it was."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    begun = old.lineno, old.col_offset
    function = ast.dump(old.func)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (node.lineno, node.col_offset) != begun:
            continue
        if ast.dump(node.func) == function:
            return _arguments(node, order) == _expected(old, wanted, order)
    return False


def _arguments(call: ast.Call, order: Sequence[str | None]) -> dict[str, str]:
    by_place = {_named(order, at): ast.dump(value) for at, value in enumerate(call.args)}
    return by_place | {k.arg or "**": ast.dump(k.value) for k in call.keywords}


def _named(order: Sequence[str | None], at: int) -> str:
    return (order[at] if at < len(order) else None) or f"#{at}"


def _expected(
    call: ast.Call, wanted: Mapping[str, str], order: Sequence[str | None]
) -> dict[str, str]:
    expected = _arguments(call, order)
    for name, value in wanted.items():
        if value:
            expected[name] = ast.dump(ast.parse(value, mode="eval").body)
        else:
            expected.pop(name, None)
    return expected


def _lines(source: Source, edits: Sequence[_Edit]) -> Edited:
    """The whole lines that the edits touch, before and after them."""
    text = source.text
    begin = min(edit.begin for edit in edits)
    end = max(edit.end for edit in edits)
    while begin > 0 and text[begin - 1] not in "\r\n":
        begin -= 1
    line = source.line_at(begin)
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    after = text[:end]
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        after = after[: edit.begin] + edit.text + after[edit.end :]
    return Edited(line, text[begin:end], after[begin:])
