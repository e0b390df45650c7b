"""The page: whole, escaped, and without what was not measured."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.report import page
from stoker.report.page import page_html, view
from stoker.report.plot_timeline import MOST_SPANS, ordered_tracks, timeline_plot
from stoker.tuning.answer import Advice, Answer, Change, Limit, Line, Parts, Report, Span, Work
from tests.unit.report import samples

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Reads a page as a browser would and keeps what matters."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        for tag in set(self.open[-2:]):
            self.texts.setdefault(tag, []).append(data)

    def told(self, tag: str) -> str:
        return " ".join("".join(self.texts.get(tag, [])).split())

    @property
    def visible(self) -> str:
        hidden = {"script", "style"}
        return " ".join(
            " ".join("".join(texts).split())
            for tag, texts in self.texts.items()
            if tag not in hidden
        )

    @property
    def figures(self) -> list[dict[str, object]]:
        return [json.loads(text) for text in self.scripts if text.startswith('{"data"')]


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five megabytes a page are nothing to read fifty times; the browser's test has them."""
    monkeypatch.setattr(page, "_plotly", lambda: "/* plotly */")


def read(report: Report) -> Reader:
    reader = Reader(page_html(report))
    assert reader.open == []
    return reader


def test_a_program_with_two_loaders() -> None:
    reader = read(samples.program())
    assert "Use 4 workers: 3.8 times as fast" in reader.told("span").replace("\u00a0", " ")
    assert "Keep 2 workers: there is nothing to gain" in reader.told("h2")
    assert "worker" in reader.told("strong")
    assert len(reader.figures) == sum(tag == "figure" for tag, _ in reader.tags) == 11
    charts = [attrs for _, attrs in reader.tags if attrs.get("class") == "chart"]
    assert all(attrs["role"] == "img" and len(attrs["aria-label"] or "") > 40 for attrs in charts)


def test_the_change_can_be_copied() -> None:
    change = Change("", "train.py", 3, "  a = 1\n  b = 2", "  a = 1\n  b = 3 < 4")
    reader = read(samples.report(replace(samples.train(), change=change)))
    assert [attrs.get("data-text") for _, attrs in reader.tags if "data-text" in attrs] == [
        change.after
    ]
    assert reader.texts["del"] == ["-   a = 1", "-   b = 2"]
    assert reader.texts["ins"] == ["+   a = 1", "+   b = 3 < 4"]


def test_the_headings_go_down_a_step_at_a_time() -> None:
    for report in (samples.program(), samples.only_failures(), samples.unmeasured()):
        levels = [int(tag[1]) for tag, _ in read(report).tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_id_is_there_once_and_every_link_leads_somewhere() -> None:
    tags = read(samples.program()).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in tags:
        named = attrs.get("aria-labelledby") or attrs.get("data-for")
        assert named is None or named in ids
        assert (attrs.get("href") or "#").startswith(("#", "data:"))
        assert (attrs.get("href") or "#")[1:] in {*ids, "", "ata:,"}


def test_every_plot_has_its_numbers_beside_it() -> None:
    text = page_html(samples.program())
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert all("<figcaption>" in figure and "<table" in figure for figure in figures)


def test_the_facts_of_the_machine_have_their_sources() -> None:
    told = read(samples.program()).told("td")
    cpus = samples.CPUS
    for fact in (cpus.usable, cpus.machine, cpus.affinity, cpus.quota, cpus.override):
        assert fact.source in told
    assert samples.MEMORY.source in told
    assert "29.4 GiB" in told


def test_nothing_is_fetched() -> None:
    text = page_html(samples.program())
    assert "default-src 'none'" in text.replace("&#39;", "'")
    for tag, attrs in Reader(text).tags:
        assert "src" not in attrs, tag
    assert not re.search(r"https?://|url\(|@import", text)


def test_what_a_user_wrote_stays_text() -> None:
    reader = read(samples.hostile())
    assert "<script>document.title='taken'</script>" in reader.told("h1")
    assert sum(tag == "b" for tag, _ in reader.tags) == 0
    assert all("taken" not in text for text in reader.scripts if not text.startswith('{"data"'))
    assert "49" not in reader.told("h1")
    for figure in reader.figures:
        drawn = json.dumps(figure, ensure_ascii=False)
        assert "<script" not in drawn


def test_nothing_to_gain_is_a_good_answer() -> None:
    told = read(samples.nothing_to_gain()).visible
    assert "there is nothing to gain" in told
    assert "This is a good result" in told
    assert "The change" not in told


def test_only_failures() -> None:
    reader = read(samples.only_failures())
    assert "No answer" in reader.told("h2")
    assert "What went wrong" in reader.told("h2")
    assert "FileNotFoundError" in reader.told("h3")
    assert "mend the path" in reader.told("dd")
    assert reader.figures == []
    assert "/* plotly */" not in "".join(reader.scripts)


def test_a_report_without_anything() -> None:
    reader = read(samples.report())
    assert "The program made no loader" in reader.visible
    assert "What went wrong" not in reader.visible


def test_what_was_not_measured_is_said() -> None:
    reader = read(samples.unmeasured())
    assert "No recommendation: not enough could be measured" in reader.told("h2")
    assert "too few to tell" in reader.told("p")
    assert "Not measured in this run: speed by number of workers" in reader.told("p")
    assert reader.figures == []


def test_a_single_rate_is_a_table_and_no_plot() -> None:
    answer = replace(samples.validation(), rates=(samples.rate(2, 12.9, own=True),))
    shown = view(answer, 1)
    assert shown.rates is not None
    assert shown.rates.figure is None
    assert shown.rates.table.rows[0][0] == "2"
    assert shown.beside == []


def test_a_bound_far_above_does_not_flatten_the_plot() -> None:
    plot = view(replace(samples.train(), bound_per_s=4000.0), 1).rates
    assert plot is not None
    assert plot.figure is not None
    assert json.loads(plot.figure)["layout"]["yaxis"]["range"][1] < 40
    assert "4,000, far above this" in plot.sentence


def test_other_loaders_and_prefetch_are_lines_of_their_own() -> None:
    plot = view(samples.train(), 1).rates
    assert plot is not None
    assert [key.text for key in plot.keys] == [
        "PyTorch's loader",
        "Stoker's loader",
        "PyTorch's loader, prefetch_factor=4",
        "now: 0 workers",
        "recommended: 4 workers",
        "the most possible: 24.4",
    ]


def test_a_long_timeline_is_cut_and_says_so() -> None:
    spans = [
        Span("consumer", "step", n, n + 1, n, n * 3 // MOST_SPANS) for n in range(MOST_SPANS + 5)
    ]
    plot = timeline_plot(replace(samples.train(), timeline=tuple(spans)))
    assert plot is not None
    assert "a part of the 4,005 stretches" in plot.sentence
    assert {row[0] for row in plot.table.rows} == {"0", "1", "2", "3"}
    assert sum(int(row[3].replace(",", "")) for row in plot.table.rows) <= MOST_SPANS


def test_moments_are_told_but_not_drawn() -> None:
    moments = (Span("consumer", "replay", 1.0, 1.0), Span("consumer", "replay", 2.0, 2.0))
    plot = timeline_plot(replace(samples.train(), timeline=moments))
    assert plot is not None
    assert plot.figure is None
    assert plot.table.rows[0][3] == "2"


def test_parts_that_are_the_same_are_drawn_once() -> None:
    answer = samples.validation()
    plots = view(replace(answer, best_parts=answer.parts), 1).further
    assert len(plots[0].table.rows) == len(view(answer, 1).further[0].table.rows)


def test_a_first_batch_that_nobody_saw_is_left_out() -> None:
    unseen = samples.rate(9, 12.0, first_s=0.0)
    answer = replace(samples.validation(), rates=(*samples.validation().rates, unseen))
    plot = view(answer, 1).beside[0]
    assert [row[0] for row in plot.table.rows] == ["1", "2", "3"]


def test_workers_stand_in_the_order_of_their_numbers() -> None:
    spans = [Span(t, "make", 0, 1) for t in ("worker 10", "worker 9", "other", "consumer")]
    assert ordered_tracks(spans) == ["consumer", "worker 9", "worker 10", "other"]


@pytest.mark.parametrize("part", ["parts", "best_parts", "timeline", "waits", "lines", "rates"])
def test_each_part_may_be_missing(part: str) -> None:
    empty = None if part.endswith("parts") else ()
    read(samples.report(replace(samples.train(), **{part: empty})))


TEXT = st.text(max_size=12) | st.just(samples.HOSTILE)
SECONDS = st.floats(0, 1e4)
SHARE = st.floats(0, 1)
COUNT = st.integers(0, 200)
RATES = st.builds(
    samples.rate,
    COUNT,
    st.floats(0, 1e6),
    st.none() | SHARE,
    SECONDS,
    memory_bytes=st.none() | st.integers(0, 2**45),
    own=st.booleans(),
    engine=st.sampled_from(["torch", "stoker"]),
    prefetch_factor=st.none() | st.integers(1, 9),
)
PARTS = st.builds(Parts, COUNT, *[SECONDS] * 8)
ANSWERS = st.builds(
    Answer,
    name=TEXT,
    loader=st.none() | st.just(samples.train().loader),
    consumer=TEXT,
    site=st.none() | st.just(samples.train().site),
    now_per_s=st.none() | st.floats(0, 1e6),
    waiting=st.none() | SHARE,
    step_s=st.none() | SECONDS,
    bound_per_s=st.none() | st.floats(0, 1e9),
    rates=st.lists(RATES, max_size=4).map(tuple),
    limit=st.builds(Limit, st.sampled_from(["cpu", "storage", "start", "unknown"]), TEXT),
    advice=st.none()
    | st.builds(Advice, COUNT, st.floats(0, 1e6), TEXT, st.booleans(), gain=st.none() | SECONDS),
    change=st.none() | st.builds(Change, TEXT, TEXT, COUNT, TEXT, TEXT),
    parts=st.none() | PARTS,
    best_parts=st.none() | PARTS,
    lines=st.lists(st.builds(Line, TEXT, COUNT, TEXT, TEXT, SHARE, COUNT, TEXT), max_size=2).map(
        tuple
    ),
    timeline=st.lists(
        st.builds(Span, TEXT, TEXT, SECONDS, SECONDS, st.none() | COUNT, COUNT), max_size=4
    ).map(tuple),
    waits=st.lists(st.tuples(SECONDS | st.just(math.inf), COUNT), max_size=3).map(tuple),
    remarks=st.lists(TEXT, max_size=2).map(tuple),
    work=st.none() | st.builds(Work, *[SECONDS] * 5, st.none() | COUNT, COUNT, SECONDS, SHARE),
)


@settings(max_examples=15)
@given(st.lists(ANSWERS, max_size=2))
def test_any_report_gives_a_whole_page(answers: list[Answer]) -> None:
    read(samples.report(*answers))


def test_the_libraries_are_imported_when_a_page_is_made() -> None:
    program = (
        "import sys, stoker.report.page, stoker.report.trace\n"
        "assert not {'plotly', 'jinja2', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
