"""The reference page in a real browser, served by a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.servers.chromium import Chromium
from tests.support.running_server import Running, running_server

pytestmark = pytest.mark.slow

expect.set_options(timeout=30_000)  # where the machine is busy, processes and browser take their time


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server"), "memory://") as running:
        yield running


@pytest.fixture(params=[420, 1200])
def page(request: pytest.FixtureRequest, chromium: Chromium, server: Running) -> Iterator[Page]:
    """The page, about which the browser may not complain."""
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{chromium.port}")
        context = browser.new_context(viewport={"width": request.param, "height": 800})
        opened = context.new_page()
        opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.goto(f"{server.url}/docs")
        yield opened
        context.close()
        browser.close()
    assert [text for text in complaints if not text.startswith("Failed to load resource")] == []


def too_wide(page: Page) -> int:
    """By how many pixels one would have to scroll sideways."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide


def test_the_page_fits_the_screen_and_names_the_address_that_it_comes_from(page: Page, server: Running) -> None:
    assert too_wide(page) == 0
    example = page.locator("#timers_create pre").first
    expect(example).to_contain_text(f"{server.url}/v1/timers/create")
    assert "127.0.0.1:8700" not in page.locator("body").inner_text()
    field = page.locator("#timers_create td code", has_text=re.compile("^callbackTimeoutSeconds$"))
    box = field.bounding_box()
    assert box is not None
    assert box["height"] < 30, "a name is not broken into lines"


def test_a_form_sends_what_is_in_it_and_shows_the_answer(page: Page, server: Running, tmp_path: Path) -> None:
    article = page.locator("#timers_create")
    article.get_by_text("Try it").click()
    body, answer = article.get_by_label("Body of /v1/timers/create"), article.locator("output")
    assert '"order-42-reminder"' in body.input_value()
    article.get_by_role("button", name="Send").click()
    expect(answer).to_contain_text("401")
    page.get_by_label("Token for the forms").fill(server.token)
    body.fill('{"timerId": "from-the-page", "delaySeconds": 60, "callbackUrl": "http://127.0.0.1:9/"}')
    article.get_by_role("button", name="Send").click()
    expect(answer).to_contain_text("200")
    expect(answer).to_contain_text('"timerId": "from-the-page"')
    assert too_wide(page) == 0
    page.screenshot(path=str(tmp_path / "form.png"))  # to be looked at

    health = page.locator("#health")
    health.get_by_text("Try it").click()
    health.get_by_role("button", name="Send").click()
    expect(health.locator("output")).to_contain_text('"status": "ok"')
    page.reload()
    assert page.get_by_label("Token for the forms").input_value() == ""


def test_without_scripts_the_page_can_be_read(chromium: Chromium, server: Running) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{chromium.port}")
        context = browser.new_context(java_script_enabled=False)
        opened = context.new_page()
        opened.goto(f"{server.url}/")
        expect(opened.locator("#timers_create h3")).to_be_visible()
        expect(opened.get_by_text("Try it").first).to_be_hidden()
        context.close()
        browser.close()
