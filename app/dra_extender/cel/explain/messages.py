"""Messages about single conditions: the value that was found, and the one that was wanted; what does not exist, and what does."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.explain.evaluation import Evaluation, ExplainedPart, operands
from dra_extender.cel.explain.values import MOST_ITEMS, shown
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import access_expression, text_literal
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.values import MAPS, DomainMap, Optional, from_map_key, type_name

_KINDS: Final = {"attributes": "attribute", "capacity": "capacity"}
_NAMED: Final = 2


def missing_attribute_message(device: DeviceActivation, path: tuple[str, ...]) -> str:
    """The message about a path below `device`, such as ("attributes", domain, name), that does not exist; empty for others."""
    kind, *rest = path
    if kind not in _KINDS or len(rest) != _NAMED:
        return ""
    domain, name = rest
    domains = _domains(device, kind)
    noun = _KINDS[kind]
    if domain not in domains:
        return f"the device has no {noun} of domain {text_literal(domain)}; {_other_domain(device, kind, domain, name)}"
    missing = f"the device has no {noun} {text_literal(name)} of domain {text_literal(domain)}"
    return f"{missing}; {_other_name(device, kind, domain, name)}"


def missing_key_message(value: Any, key: object) -> str:
    """The message about a missing key, with the keys that the map has; empty for values that are no maps."""
    if type(value) not in MAPS:
        return ""
    names = [shown(from_map_key(each)) for each in value]
    return f"there is no {shown(key)}; {_choice(names, shown(key)) or 'the map is empty'}"


def _domains(device: DeviceActivation, kind: str) -> DomainMap:
    return device.attributes if kind == "attributes" else device.capacity


def _other_domain(device: DeviceActivation, kind: str, domain: str, name: str) -> str:
    domains = _domains(device, kind)
    own = domains.get(device.driver, {})
    if domain in own:
        return f"did you mean {access_expression(kind, device.driver, domain)}?"
    before, slash, after = domain.partition("/")
    if slash and after in domains.get(before, {}):
        return f"did you mean {access_expression(kind, before, after)}?"
    elsewhere = _elsewhere(device, kind, name)
    return elsewhere or _choice(list(domains), domain) or "it has none at all"


def _other_name(device: DeviceActivation, kind: str, domain: str, name: str) -> str:
    names = list(_domains(device, kind)[domain])
    return _elsewhere(device, kind, name) or _choice(names, name) or "it has none there"


def _elsewhere(device: DeviceActivation, kind: str, name: str) -> str:
    """The same name under the other kind, or in another domain."""
    for other in sorted(_KINDS, key=lambda each: each != kind):
        for domain, names in _domains(device, other).items():
            if name in names:
                return f"did you mean {access_expression(other, domain, name)}?"
    return ""


def _choice(names: list[str], wanted: str) -> str:
    """The most similar name if there is one, and the names that exist."""
    if not names:
        return ""
    folded: Mapping[str, str] = {name.casefold(): name for name in sorted(names)}
    close = get_close_matches(wanted.casefold(), list(folded), n=1, cutoff=0.6)
    hint = f"did you mean {folded[close[0]]}? " if close else ""
    more = f" and {len(names) - MOST_ITEMS} more" if len(names) > MOST_ITEMS else ""
    known = ", ".join(sorted(names)[:MOST_ITEMS]) + more
    return f"{hint}It has {known}" if hint else f"it has {known}"


_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WANTED: Final = {
    "==": "{}",
    "!=": "anything but {}",
    "<": "less than {}",
    "<=": "at most {}",
    ">": "more than {}",
    ">=": "at least {}",
    "in": "one of {}",
    "not in": "none of {}",
}
_METHODS: Final = {
    "startsWith": ("a text that starts with {}", "no text that starts with {}"),
    "endsWith": ("a text that ends with {}", "no text that ends with {}"),
    "contains": ("a text that contains {}", "no text that contains {}"),
    "matches": ("a match of {}", "no match of {}"),
    "includes": ("{} or a list with it", "neither {} nor a list with it"),
    "isGreaterThan": ("more than {}", "at most {}"),
    "isLessThan": ("less than {}", "at least {}"),
}
_SHOWN_ARGUMENTS: Final = 4
_NODE_UNITS: Final = 60


def condition_message(evaluation: Evaluation, item: ExplainedPart, *, value: bool, wanted: bool) -> str:
    """The message about a condition that is `value` and should have been `wanted`."""
    node = item.node
    if isinstance(node, ast.Select):
        return _selection_message(evaluation, item, value=value, wanted=wanted)
    if isinstance(node, ast.CallExpression):
        symbol = "in" if node.function == "@in" else node.function.strip("_")
        if symbol in _OPPOSITE:
            return _comparison_message(evaluation, operands(item), symbol, met=value is wanted, wanted=wanted)
        if symbol == "in":
            return _membership_message(evaluation, operands(item), met=value is wanted, wanted=wanted)
        return _call_message(evaluation, item, value=value, wanted=wanted)
    return _flag_message(evaluation, item, value=value, wanted=wanted)


def value_text(evaluation: Evaluation, item: ExplainedPart) -> str:
    """The value of a part, or the error of its evaluation."""
    outcome = evaluation.outcome(item)
    return shown(outcome.value) if outcome.error is None else f"not known ({outcome.error})"


def absence_message(evaluation: Evaluation, item: ExplainedPart) -> str:
    """Which optional selection inside of a part found nothing; empty if none."""
    pending = [item]
    while pending and evaluation.spend(_NODE_UNITS):
        found = pending.pop()
        checked = found.checked
        if isinstance(checked, typed_ast.FieldSelection | typed_ast.Index) and checked.optional:
            outcome = evaluation.outcome(found)
            if isinstance(outcome.value, Optional) and not outcome.value.present:
                return f" ({evaluation.text(found)} is absent)"
        pending.extend(operands(found))
    return ""


def _flag_message(evaluation: Evaluation, item: ExplainedPart, *, value: bool, wanted: bool) -> str:
    truth = "true" if value else "false"
    if not evaluation.is_open(item):
        return f"{evaluation.text(item)} is always {truth}"
    return f"{evaluation.text(item)} is {truth}" + (
        "" if value is wanted else f", wanted {'true' if wanted else 'false'}"
    )


def _selection_message(evaluation: Evaluation, item: ExplainedPart, *, value: bool, wanted: bool) -> str:
    node, checked = item.node, item.checked
    if not isinstance(node, ast.Select) or not node.test or not isinstance(checked, typed_ast.FieldSelection):
        return _flag_message(evaluation, item, value=value, wanted=wanted)
    present = ast.Select(node.offset, node.depth, node.operand, node.field)
    text = evaluation.text(present)
    if not value:
        return f"{text} is absent"
    plain = msgspec.structs.replace(checked, test=False)
    outcome = evaluation.outcome(ExplainedPart(present, plain))
    return f"{text} is {shown(outcome.value)}" if outcome.error is None else f"{text} is present"


def _comparison_message(
    evaluation: Evaluation, sides: list[ExplainedPart], symbol: str, *, met: bool, wanted: bool
) -> str:
    """`A is 1, wanted 2`; a comparison of compareTo with zero is written as the comparison of its operands."""
    left, right = compared_sides(sides)
    needed = symbol if wanted else _OPPOSITE[symbol]
    if not evaluation.is_open(left) and evaluation.is_open(right):
        left, right, needed = right, left, _MIRRORED[needed]
    text = f"{evaluation.text(left)} is {value_text(evaluation, left)}{absence_message(evaluation, left)}"
    other = value_text(evaluation, right)
    expected = _WANTED[needed].format(other)
    if evaluation.is_open(right):
        text += f", {evaluation.text(right)} is {other}{absence_message(evaluation, right)}"
    if met:
        return text if needed in {"==", "!="} or evaluation.is_open(right) else f"{text}, {expected}"
    return f"{text}, wanted {expected}"


def compared_sides(sides: list[ExplainedPart]) -> list[ExplainedPart]:
    """What a comparison with these operands compares: compareTo against zero compares the sides of that call."""
    left, right = sides
    inner = _compared(left) if isinstance(right.node, ast.Literal) and right.node.value == 0 else None
    return sides if inner is None else inner


def _compared(item: ExplainedPart) -> list[ExplainedPart] | None:
    """Both sides of a call of compareTo."""
    if isinstance(item.node, ast.CallExpression) and item.node.function == "compareTo":
        sides = operands(item)
        return sides if len(sides) == 2 else None  # noqa: PLR2004 - both sides
    return None


def _membership_message(evaluation: Evaluation, sides: list[ExplainedPart], *, met: bool, wanted: bool) -> str:
    element, values = sides
    container = _elements_text(evaluation, values)
    if evaluation.is_open(element) or not evaluation.is_open(values):
        text = f"{evaluation.text(element)} is {value_text(evaluation, element)}{absence_message(evaluation, element)}"
        if evaluation.is_open(values):
            text += f", {evaluation.text(values)} is {container}"
        return text if met else f"{text}, wanted {_WANTED['in' if wanted else 'not in'].format(container)}"
    has = f"{evaluation.text(values)} is {container}"
    sought = value_text(evaluation, element)
    return has if met else f"{has}, wanted {sought} {'in it' if wanted else 'not to be in it'}"


def _elements_text(evaluation: Evaluation, values: ExplainedPart) -> str:
    """A list, or the keys of a map, which `in` searches."""
    value = evaluation.outcome(values).value
    return shown([from_map_key(key) for key in value]) if type(value) in MAPS else value_text(evaluation, values)


def _call_message(evaluation: Evaluation, item: ExplainedPart, *, value: bool, wanted: bool) -> str:
    node = item.node
    arguments = operands(item)
    if isinstance(node, ast.CallExpression) and node.function in _METHODS and len(arguments) == 2:  # noqa: PLR2004 - both sides
        subject, other = arguments
        text = f"{evaluation.text(subject)} is {value_text(evaluation, subject)}{absence_message(evaluation, subject)}"
        expected = _METHODS[node.function][0 if wanted else 1].format(value_text(evaluation, other))
        return f"{text}, {expected}" if value is wanted else f"{text}, wanted {expected}"
    facts = [
        f"{evaluation.text(each)} is {value_text(evaluation, each)}{absence_message(evaluation, each)}"
        for each in arguments[:_SHOWN_ARGUMENTS]
        if evaluation.is_open(each)
    ]
    text = _flag_message(evaluation, item, value=value, wanted=wanted)
    return f"{text}, where {', '.join(facts)}" if facts else text


def failure_message(evaluation: Evaluation, item: ExplainedPart, error: str) -> str:
    """The message about a part that failed: its operands with their types."""
    facts = []
    for each in operands(item)[:_SHOWN_ARGUMENTS]:
        outcome = evaluation.outcome(each)
        if outcome.error is None and evaluation.is_open(each):
            facts.append(f"{evaluation.text(each)} is {_typed(outcome.value)}")
    where = f", where {', '.join(facts)}" if facts else ""
    return f"{evaluation.text(item)} fails: {error}{where}"


def _typed(value: Any) -> str:
    kind = type_name(value)
    return shown(value) if kind == "string" else f"{shown(value)} ({kind.removeprefix('kubernetes.')})"
