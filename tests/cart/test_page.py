"""The page for trials, in a real browser, with the cart and a simulated platform as processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, expect, sync_playwright

from tests.cart.processes import demo
from tests.servers.chromium import Chromium

pytestmark = pytest.mark.slow


@pytest.fixture(params=["salesforce", "shopify"])
def page(request: pytest.FixtureRequest, chromium: Chromium, tmp_path: Path) -> Iterator[Page]:
    """The page, in which nothing may go wrong."""
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        is_answer = message.text.startswith("Failed to load resource")  # a problem, which the page tells in words
        if message.type == "error" and not is_answer:
            complaints.append(message.text)

    def fail(error: Error) -> None:
        complaints.append(str(error))

    with demo(tmp_path, "--provider", request.param) as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{chromium.port}")
        context = browser.new_context()
        opened = context.new_page()
        opened.on("console", listen)
        opened.on("pageerror", fail)
        opened.goto(address)
        yield opened
        context.close()
        browser.close()
    assert complaints == []


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def rows(page: Page, caption: str) -> Locator:
    return page.get_by_role("table", name=caption).locator("tbody tr:not(:has(td.none))")


def test_a_customer_fills_a_cart_and_orders_it_once_however_often_is_clicked(page: Page) -> None:
    totals, answer = page.get_by_label("Totals"), page.get_by_label("Answer")
    expect(page.get_by_label("Health", exact=True)).to_contain_text("healthy")
    press(page, "Add Phone")
    expect(rows(page, "Items")).to_have_count(1)
    expect(totals).to_contain_text("not determined")

    page.get_by_label("Province").select_option("ON")
    expect(totals).to_contain_text("HST 13 %")
    expect(totals).to_contain_text("$902.87")
    page.get_by_label("Province").select_option("QC")
    expect(totals).to_contain_text("QST 9.975 %")
    expect(totals).to_contain_text("$918.65")
    page.get_by_label("Quantity of Phone").fill("2")
    page.get_by_label("Quantity of Phone").blur()
    expect(totals).to_contain_text("$1,837.30")
    expect(page.get_by_label("States")).to_contain_text("synced")
    expect(rows(page, "Baskets")).to_contain_text("2 \N{MULTIPLICATION SIGN} phone-1")

    press(page, "Click twice")
    said = answer.locator("p")
    expect(said).to_have_count(2)
    expect(said.filter(has_text="is ordered")).to_have_count(1)
    expect(said.filter(has_text="was ordered before")).to_have_count(1)
    expect(rows(page, "Orders")).to_have_count(1)
    expect(rows(page, "Items")).to_have_count(0)


def test_an_order_whose_reply_is_dropped_is_found_and_made_once(page: Page) -> None:
    press(page, "Add Plan 20 GB")
    expect(page.get_by_label("States")).to_contain_text("synced")
    press(page, "Drop the reply to the next order")
    expect(page.get_by_label("Faults that wait")).to_contain_text("applyThenDrop of checkout")
    press(page, "Click twice")
    said = page.get_by_label("Answer").locator("p")
    expect(said).to_have_count(2)
    expect(rows(page, "Orders")).to_have_count(1)
    first, second = (re.match("Order ([^ ]+) (is|was) ordered", text) for text in said.all_inner_texts())
    assert first is not None
    assert second is not None
    assert first[1] == second[1]


def test_a_basket_that_expired_is_made_again_and_ordered(page: Page) -> None:
    press(page, "Add Roaming")
    expect(rows(page, "Baskets")).to_have_count(1)
    press(page, "Expire all baskets")
    expect(rows(page, "Baskets")).to_have_count(0)
    press(page, "Check out")
    expect(page.get_by_label("Answer")).to_contain_text("is ordered")
    expect(rows(page, "Orders")).to_contain_text("$10.00")
