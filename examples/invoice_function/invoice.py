"""Adds up invoices. Amounts are exact until they are rounded, once for each tax rate, halves away from zero."""

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal, TypedDict

CENT = Decimal("0.01")
WHOLE = 100  # percent


class Line(TypedDict):
    text: str
    quantity: float
    unit_price: float
    tax_percent: float


def total(
    lines: list[Line],
    currency: Literal["EUR", "USD", "GBP"] = "EUR",
    discount_percent: float = 0,
    prices_include_tax: bool = False,
) -> dict[str, Any]:
    """Net, tax and gross of an invoice, as a whole and for each tax rate.

    Amounts are returned as text with two decimals, so that no reader rounds them again. The discount is taken off
    every line alike.
    """
    kept = 1 - _percent(discount_percent, "discount_percent")
    by_rate: dict[Decimal, Decimal] = defaultdict(Decimal)
    for number, line in enumerate(lines, start=1):
        rate = _percent(line["tax_percent"], f"tax_percent of line {number}")
        by_rate[rate] += _exact(line["quantity"]) * _exact(line["unit_price"]) * kept
    sums = [_rate_sums(rate, amount, prices_include_tax) for rate, amount in sorted(by_rate.items())]
    return {
        "currency": currency,
        **{name: str(sum((part[name] for part in sums), start=Decimal("0.00"))) for name in ("net", "tax", "gross")},
        "rates": [{name: str(value) for name, value in part.items()} for part in sums],
    }


def _rate_sums(rate: Decimal, amount: Decimal, prices_include_tax: bool) -> dict[str, Decimal]:
    rounded = _cents(amount)
    net = _cents(amount / (1 + rate)) if prices_include_tax else rounded
    tax = rounded - net if prices_include_tax else _cents(net * rate)
    return {"tax_percent": (rate * WHOLE).normalize() + 0, "net": net, "tax": tax, "gross": net + tax}


def _percent(value: float, name: str) -> Decimal:
    if not 0 <= value <= WHOLE:
        raise ValueError(f"{name} is {value}; it has to be between 0 and {WHOLE}")
    return _exact(value) / WHOLE


def _exact(value: float) -> Decimal:
    return Decimal(str(value))


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)
