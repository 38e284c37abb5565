"""Taxes of every province, with their dates, in integers."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telecom_cart.taxes import Province, rates_of, taxes_on

NOW = date(2026, 11, 16)
RATES = {
    Province.AB: [("GST", 5_000)],
    Province.BC: [("GST", 5_000), ("PST", 7_000)],
    Province.MB: [("GST", 5_000), ("RST", 7_000)],
    Province.NB: [("HST", 15_000)],
    Province.NL: [("HST", 15_000)],
    Province.NS: [("HST", 14_000)],
    Province.NT: [("GST", 5_000)],
    Province.NU: [("GST", 5_000)],
    Province.ON: [("HST", 13_000)],
    Province.PE: [("HST", 15_000)],
    Province.QC: [("GST", 5_000), ("QST", 9_975)],
    Province.SK: [("GST", 5_000), ("PST", 6_000)],
    Province.YT: [("GST", 5_000)],
}
CHANGES = [
    (Province.NS, date(2025, 4, 1), 15_000, 14_000),
    (Province.NB, date(2016, 7, 1), 13_000, 15_000),
    (Province.NL, date(2016, 7, 1), 13_000, 15_000),
    (Province.PE, date(2016, 10, 1), 14_000, 15_000),
    (Province.MB, date(2019, 7, 1), 8_000, 7_000),
    (Province.SK, date(2017, 3, 23), 5_000, 6_000),
]


@pytest.mark.parametrize("province", list(Province))
def test_every_province_has_its_taxes(province: Province) -> None:
    assert [(rate.name, rate.rate) for rate in rates_of(province, NOW)] == RATES[province]


@pytest.mark.parametrize(("province", "day", "before", "after"), CHANGES)
def test_a_rate_changes_on_its_day(province: Province, day: date, before: int, after: int) -> None:
    assert rates_of(province, day - timedelta(days=1))[-1].rate == before
    assert rates_of(province, day)[-1].rate == after


@pytest.mark.parametrize(
    ("amount", "province", "taxes"),
    [
        (10, Province.AB, [1]),  # 0.5 cents rounds up
        (9, Province.AB, [0]),
        (1_00, Province.QC, [5, 10]),  # 9.975 rounds up
        (100_00, Province.QC, [500, 998]),  # 997.5 rounds up
        (1_999_99, Province.ON, [26_000]),  # 25999.87
        (0, Province.BC, [0, 0]),
    ],
)
def test_half_a_cent_rounds_up_per_tax_on_the_total(amount: int, province: Province, taxes: list[int]) -> None:

    assert [line.amount for line in taxes_on(amount, province, NOW)] == taxes


@given(st.integers(0, 10**12), st.sampled_from(list(Province)), st.dates(date(2008, 1, 1), date(2030, 1, 1)))
def test_a_tax_is_never_off_by_more_than_half_a_cent(amount: int, province: Province, on: date) -> None:
    for line in taxes_on(amount, province, on):
        assert abs(line.amount * 100_000 - amount * line.rate) * 2 <= 100_000
        assert line.amount * 100_000 * 2 >= amount * line.rate * 2 - 100_000 + 1


def test_before_there_was_a_tax_there_is_none() -> None:
    assert rates_of(Province.AB, date(2007, 12, 31)) == ()
