"""The page for trials, in a real browser, with the cart and a simulated platform as processes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, expect, sync_playwright

from tests.cart.processes import demo
from tests.servers.chromium import Chromium

pytestmark = pytest.mark.slow

expect.set_options(timeout=30_000)  # where the machine is busy, processes and browser take their time


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


def test_a_customer_whose_cart_was_killed_while_the_platform_ordered_is_told_of_the_order(
    page: Page, tmp_path: Path
) -> None:
    answer = page.get_by_label("Answer")
    press(page, "Add Phone")
    expect(page.get_by_label("States")).to_contain_text("synced, last at")
    press(page, "Take 4 s for the next order")
    expect(page.get_by_label("Faults that wait")).to_contain_text("delay of checkout")
    press(page, "Check out")
    expect(page.get_by_label("States")).to_contain_text("submitting")
    os.kill(int((tmp_path / ".telecom-cart/cart.pid").read_text()), signal.SIGKILL)
    expect(answer).to_contain_text("It is asked again.")
    expect(answer.locator("p")).to_have_text(re.compile("Order [^ ]+ (is|was) ordered"), timeout=40_000)
    expect(rows(page, "Ordered by this customer")).to_have_count(1)
    expect(rows(page, "Orders")).to_have_count(1)
    expect(rows(page, "Items")).to_have_count(0)
    expect(page.get_by_role("button", name="Check out", exact=True)).to_be_enabled()


def test_a_quantity_that_is_refused_or_none_leaves_the_field_and_the_cart_as_they_were(page: Page) -> None:
    answer, quantity = page.get_by_label("Answer"), page.get_by_label("Quantity of Phone")
    press(page, "Add Phone")
    for wrong in ("100", "1.5", "-1"):
        quantity.fill(wrong)
        quantity.blur()
        expect(answer).to_contain_text("VALIDATION_ERROR")
        expect(quantity).to_have_value("1")
    quantity.fill("")
    quantity.blur()
    expect(quantity).to_have_value("1")
    expect(rows(page, "Items")).to_have_count(1)
    quantity.fill("2")
    quantity.blur()
    expect(page.get_by_label("Totals")).to_contain_text("$1,598.00")
    expect(answer).to_be_empty()


def test_the_cart_of_one_customer_is_not_shown_for_another_that_cannot_be(page: Page) -> None:
    customer = page.get_by_label("Customer", exact=True)
    press(page, "Add Phone")
    expect(rows(page, "Items")).to_have_count(1)
    for wrong, told in (("", "Enter a customer."), ("a b", "VALIDATION_ERROR")):
        customer.fill(wrong)
        customer.blur()
        expect(page.get_by_label("Answer")).to_contain_text(told)
        expect(rows(page, "Items")).to_have_count(0)
        for name in ("Add Phone", "Check out"):
            expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
        press(page, "Expire all baskets")
        press(page, "Be down")
        expect(page.get_by_label("Faults that wait")).to_contain_text("down of *")
        press(page, "No more faults")
        expect(page.get_by_label("Faults that wait")).to_contain_text("No fault waits.")
    customer.fill("pat")
    customer.blur()
    expect(rows(page, "Items")).to_have_count(1)
    expect(page.get_by_label("Answer")).to_be_empty()


def test_a_checkout_of_which_nobody_knows_is_in_the_health(page: Page) -> None:
    press(page, "Add Phone")
    page.request.post(
        f"{page.url}demo/faults",
        data={"verb": "find_order", "kind": "down", "times": None},
    )
    press(page, "Drop the reply to the next order")
    press(page, "Check out")
    expect(page.get_by_label("Answer")).to_contain_text("CHECKOUT_UNKNOWN")
    expect(page.get_by_label("Health", exact=True)).to_contain_text("1 checkout unknown", timeout=15_000)
    press(page, "No more faults")
    expect(page.get_by_label("Answer")).to_contain_text("ordered", timeout=30_000)
