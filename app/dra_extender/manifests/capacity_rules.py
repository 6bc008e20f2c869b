"""The rules of `requestPolicy`: which amounts of a shared capacity a request may ask for (KEP-5075).

Upstream: `validateRequestPolicy` in `pkg/apis/resource/validation`.  All amounts are in nano-units.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dra_extender.cel.values.quantity import NANO, parse_quantity
from dra_extender.manifests.problems import Problem

_MILLI: Final = NANO // 1000
_MOST: Final = (2**63 - 1) * NANO


class Amount:
    """A quantity as it is written, and in nano-units."""

    def __init__(self, written: str | float) -> None:
        self.text = str(written)
        self.value = parse_quantity(self.text)


def policy_problems(capacity: str | float, policy: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with the `requestPolicy` of a capacity, at paths below it."""
    values, span = [Amount(each) for each in policy.get("validValues") or ()], policy.get("validRange")
    default, total = _amount(policy, "default"), Amount(capacity)
    if values and span is not None:
        yield Problem((), "expected validValues or validRange, got both")
    elif (values or span is not None) and default is None:
        field = "validValues" if values else "validRange"
        yield Problem(("default",), f"expected a value beside {field}, the field is missing")
    elif values and default is not None:
        yield from _value_problems(values, default, total)
    elif span is not None and default is not None:
        yield from _range_problems(span, default, total)


def _amount(value: Mapping[str, Any], name: str) -> Amount | None:
    return None if value.get(name) is None else Amount(value[name])


def _value_problems(values: Sequence[Amount], default: Amount, total: Amount) -> Iterator[Problem]:
    for index, each in enumerate(values):
        where = ("validValues", index)
        if index and values[index - 1].value > each.value:
            yield Problem(where, f"expected amounts in ascending order, got {each.text} after {values[index - 1].text}")
        elif index and values[index - 1].value == each.value:
            yield Problem(where, f"expected each amount once, got {each.text} again")
        if each.value > total.value:
            yield Problem(where, f"expected at most the capacity of {total.text}, got {each.text}")
    if default.value not in {each.value for each in values}:
        yield Problem(("default",), f"expected one of validValues, got {default.text}")


def _range_problems(span: Mapping[str, Any], default: Amount, total: Amount) -> Iterator[Problem]:
    least, most, step = (_amount(span, name) for name in ("min", "max", "step"))
    if least is None:
        yield Problem(("validRange", "min"), "expected a value, the field is missing")
        return
    if least.value > total.value:
        yield Problem(("validRange", "min"), f"expected at most the capacity of {total.text}, got {least.text}")
    if default.value < least.value:
        yield Problem(("default",), f"expected at least min, {least.text}, got {default.text}")
    if most is not None:
        if least.value > most.value:
            yield Problem(("validRange", "max"), f"expected at least min, {least.text}, got {most.text}")
        if most.value > total.value:
            yield Problem(("validRange", "max"), f"expected at most the capacity of {total.text}, got {most.text}")
        if default.value > most.value:
            yield Problem(("default",), f"expected at most max, {most.text}, got {default.text}")
    amounts = [(("default",), default), (("validRange", "min"), least)]
    amounts += [(("validRange", name), each) for name, each in (("max", most), ("step", step)) if each is not None]
    yield from _step_problems(amounts, least, step, total)


def _step_problems(
    amounts: Sequence[tuple[tuple[str, ...], Amount]], least: Amount, step: Amount | None, total: Amount
) -> Iterator[Problem]:
    fractional = any(each.value % NANO for _, each in amounts)
    fine = [(where, each) for where, each in amounts if fractional and each.value % _MILLI]
    if fine:
        for where, each in fine:
            yield Problem(where, f"expected a multiple of one thousandth, got {each.text}")
        return
    if step is None:
        return
    if step.value <= 0:
        yield Problem(("validRange", "step"), f"expected an amount above 0, got {step.text}")
        return
    if least.value + step.value > total.value:
        text = f"expected min and one step to be at most the capacity of {total.text}, got {least.text} and {step.text}"
        yield Problem(("validRange", "step"), text)
    beyond = [(where, each) for where, each in amounts if not fractional and not 0 <= each.value <= _MOST]
    for where, each in beyond:
        yield Problem(where, f"expected an amount from 0 to 2^63 - 1, got {each.text}")
    for where, each in () if beyond else amounts:
        if where[-1] in ("default", "max") and (each.value - least.value) % step.value:
            yield Problem(
                where, f"expected min, {least.text}, and a multiple of the step, {step.text}; got {each.text}"
            )
