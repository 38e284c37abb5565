"""Canadian sales taxes: an example calculator, not advice.

Rates are integers per 100,000 and have days from which they hold. Each tax is taken on the taxable total, not on the
other taxes, and half a cent rounds up. The cart's province decides; without one taxes are not determined.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

_UNITS: Final = 100_000


class Province(StrEnum):
    AB = "AB"
    BC = "BC"
    MB = "MB"
    NB = "NB"
    NL = "NL"
    NS = "NS"
    NT = "NT"
    NU = "NU"
    ON = "ON"
    PE = "PE"
    QC = "QC"
    SK = "SK"
    YT = "YT"


@dataclass(frozen=True)
class TaxLine:
    name: str
    rate: int
    """Per 100,000: 9975 is 9.975 %."""
    amount: int


@dataclass(frozen=True)
class Rate:
    name: str
    since: date
    rate: int


_GST: Final = (Rate("GST", date(2008, 1, 1), 5_000),)
_ADDED: Final[dict[Province, tuple[Rate, ...]]] = {
    Province.BC: (Rate("PST", date(2013, 4, 1), 7_000),),
    Province.MB: (Rate("RST", date(2013, 7, 1), 8_000), Rate("RST", date(2019, 7, 1), 7_000)),
    Province.SK: (Rate("PST", date(2006, 10, 28), 5_000), Rate("PST", date(2017, 3, 23), 6_000)),
    Province.QC: (Rate("QST", date(2013, 1, 1), 9_975),),
}
"""On top of GST."""
_HARMONISED: Final[dict[Province, tuple[Rate, ...]]] = {
    Province.ON: (Rate("HST", date(2010, 7, 1), 13_000),),
    Province.NB: (Rate("HST", date(2008, 1, 1), 13_000), Rate("HST", date(2016, 7, 1), 15_000)),
    Province.NL: (Rate("HST", date(2008, 1, 1), 13_000), Rate("HST", date(2016, 7, 1), 15_000)),
    Province.PE: (Rate("HST", date(2013, 4, 1), 14_000), Rate("HST", date(2016, 10, 1), 15_000)),
    Province.NS: (Rate("HST", date(2010, 7, 1), 15_000), Rate("HST", date(2025, 4, 1), 14_000)),
}
"""Instead of GST, from the first of these days on."""


def rates_of(province: Province, on: date) -> tuple[Rate, ...]:
    """The taxes that hold in a province on a day."""
    harmonised = _in_force(_HARMONISED.get(province, ()), on)
    if harmonised:
        return harmonised
    return _in_force(_GST, on) + _in_force(_ADDED.get(province, ()), on)


def taxes_on(amount: int, province: Province, on: date) -> tuple[TaxLine, ...]:
    """The taxes on a net amount in minor units."""
    return tuple(TaxLine(rate.name, rate.rate, _share(amount, rate.rate)) for rate in rates_of(province, on))


def _in_force(rates: tuple[Rate, ...], on: date) -> tuple[Rate, ...]:
    place = bisect_right([rate.since for rate in rates], on)
    return rates[place - 1 : place] if place else ()


def _share(amount: int, rate: int) -> int:
    return (amount * rate + _UNITS // 2) // _UNITS
