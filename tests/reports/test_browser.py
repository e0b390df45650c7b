"""The page in a real browser: drawn whole, readable, quiet on the network, at two widths."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stoker.report.page import page_html
from stoker.tuning.answer import Report
from tests.unit.report import samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LOOK = (Path(__file__).parent / "page_script.js").read_text()
PATIENCE_MS = 90_000
DESK, PHONE = 1280, 390


def unavailable(reason: str) -> None:
    """Skips on a developer's machine; where all has to be tested, it is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and with CI set the page has to be opened", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        unavailable(f"there is no browser here: none of {', '.join(NAMES)}")
    if importlib.util.find_spec("playwright") is None:
        unavailable("playwright is not installed")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page in the browser, what it asked the network for, and what it complained about."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate(LOOK)
        return found


def opened(
    browser: Browser, folder: Path, report: Report, width: int, scheme: Any = "light", **others: Any
) -> Opened:
    file = folder / "page.html"
    file.write_text(page_html(report), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, **others
    )
    context.set_default_timeout(PATIENCE_MS)
    found = Opened(context.new_page())

    def asked(route: Any) -> None:
        if route.request.url == file.as_uri():
            route.continue_()
        else:
            found.asked.append(route.request.url)
            route.abort()

    context.route("**/*", asked)
    found.page.on("console", lambda said: found.complaints.append(f"{said.type}: {said.text}"))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.goto(file.as_uri())
    return found


def check(seen: Opened) -> list[dict[str, Any]]:
    """What has to hold of every page; its charts."""
    assert seen.complaints == []
    assert seen.asked == []
    look = seen.look()
    assert look["wide"] <= 0
    assert look["faint"] == []
    charts: list[dict[str, Any]] = look["charts"]
    for chart in charts:
        assert chart["traces"] > 0, chart
        assert chart["drawn"] >= chart["traces"] or chart["drawn"] > 10, chart
        assert chart["text"] > 2, chart
        assert not chart["outside"], chart
    return charts


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_program_is_drawn_whole(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    seen = opened(browser, tmp_path, samples.program(), width, scheme)
    assert len(check(seen)) == 11
    picture = seen.page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert len(picture) > 50_000
    seen.page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    check(seen)


@pytest.mark.parametrize(
    ("report", "charts"),
    [
        (samples.target(), 4),
        (samples.nothing_to_gain(), 5),
        (samples.only_failures(), 0),
        (samples.unmeasured(), 0),
        (samples.report(), 0),
    ],
    ids=["target", "nothing to gain", "only failures", "unmeasured", "empty"],
)
def test_every_kind_of_report_is_a_whole_page(
    browser: Browser, tmp_path: Path, report: Report, charts: int
) -> None:
    seen = opened(browser, tmp_path, report, PHONE)
    assert len(check(seen)) == charts


def test_nothing_a_user_wrote_is_run_or_made_markup(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, samples.hostile(), PHONE)
    check(seen)
    assert seen.page.title() != "taken"
    bold = "[style*=bold]"
    assert seen.page.locator(f"main b, .chart a, #loader-1-further-2 {bold}").count() == 0
    rows = seen.page.locator("#loader-1-further-2 .ytick text").all_text_contents()
    assert any("</script>" in row for row in rows)


def test_the_plots_follow_the_reader_into_the_dark(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    page = opened(browser, tmp_path, samples.target(), DESK).page
    label = page.locator(".chart .xtick text").first
    light = label.evaluate("label => getComputedStyle(label).fill")
    page.emulate_media(color_scheme="dark")
    expect(label).not_to_have_css("fill", light, timeout=PATIENCE_MS)


def test_the_change_is_copied(browser: Browser, tmp_path: Path) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    page = opened(browser, tmp_path, samples.program(), DESK, permissions=permissions).page
    page.get_by_role("button", name="Copy the new line").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    change = samples.train().change
    assert change
    assert page.evaluate("navigator.clipboard.readText()") == change.after


def test_the_timeline_is_zoomed_by_its_buttons(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, samples.report(samples.train()), PHONE).page

    def shown() -> tuple[float, float]:
        left, right = page.evaluate(
            "document.getElementById('loader-1-further-2').layout.xaxis.range.map(Number)"
        )
        return left, right

    page.get_by_role("button", name="everything").click()
    whole = shown()
    page.get_by_role("button", name="4 workers").click()
    part = shown()
    assert whole[0] < part[0] < part[1] <= whole[1]
    page.get_by_role("button", name="Closer").click()
    closer = shown()
    assert part[0] < closer[0] < closer[1] < part[1]
    page.get_by_role("button", name="Later").click()
    assert shown()[0] > closer[0]


def test_without_scripts_the_numbers_are_there(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, samples.program(), PHONE, java_script_enabled=False).page
    assert page.locator(".chart").first.is_hidden()
    assert page.locator("button:visible").count() == 0
    page.locator("summary").first.click()
    assert page.get_by_role("cell", name="now", exact=True).first.is_visible()
