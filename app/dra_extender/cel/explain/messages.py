"""Messages about single conditions: the value that was found, and the one that was wanted; what does not exist, and what does."""

from difflib import get_close_matches
from operator import eq, ne
from typing import Any, Final

import msgspec

from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.explain.evaluation import Evaluation
from dra_extender.cel.explain.values import MOST_ITEMS, shown
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import access_expression, text_literal
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands
from dra_extender.cel.values.values import LISTS, MAPS, DomainMap, Optional, from_map_key, type_name

OPPOSITE: Final = {"_==_": "_!=_", "_!=_": "_==_", "_<_": "_>=_", "_>=_": "_<_", "_>_": "_<=_", "_<=_": "_>_"}
_COMPARES: Final = {"_==_": eq, "_!=_": ne, **ast.ORDERINGS}
_ORDERS: Final = {
    tuple(compare(result, 0) for result in (-1, 0, 1)): operator for operator, compare in _COMPARES.items()
}
"""The comparison of two values that is true for these results (-1, 0, 1) of compareTo."""
_WANTED: Final = {
    "_==_": "{}",
    "_!=_": "anything but {}",
    "_<_": "less than {}",
    "_<=_": "at most {}",
    "_>_": "more than {}",
    "_>=_": "at least {}",
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
_NOUNS: Final = {"attributes": "attribute", "capacity": "capacity"}
_PAIR: Final = 2


def condition_message(evaluation: Evaluation, node: TypedNode, *, value: bool, expected: bool) -> str:
    """Return the message about a condition that is `value` and should have been `expected`."""
    written = node.written
    if isinstance(node, typed_ast.FieldSelection) and node.test and isinstance(written, ast.Select):
        return _presence_message(evaluation, node, written, present=value, expected=expected)
    if not isinstance(written, ast.CallExpression):
        return _flag_message(evaluation, node, value=value, expected=expected)
    if written.function in OPPOSITE:
        return _comparison_message(evaluation, node, met=value is expected, expected=expected)
    if written.function == "@in":
        return _membership_message(evaluation, *operands(node), met=value is expected, expected=expected)
    return _call_message(evaluation, node, written.function, value=value, expected=expected)


def _value_text(evaluation: Evaluation, node: TypedNode) -> str:
    outcome = evaluation.outcome(node)
    return shown(outcome.value) if outcome.error is None else f"not known ({outcome.error})"


def _fact(evaluation: Evaluation, node: TypedNode, value: str | None = None) -> str:
    """Return `A is 1`, with the first optional selection inside of the part that found nothing."""
    text = f"{evaluation.text(node)} is {_value_text(evaluation, node) if value is None else value}"
    part = absent_part(evaluation, node)
    if part is None:
        return text
    absence = _absence(evaluation, part.operand, _key(evaluation, part))
    return f"{text} ({absence or f'{evaluation.text(part)} is absent'})"


def absent_part(evaluation: Evaluation, node: TypedNode) -> typed_ast.FieldSelection | typed_ast.Index | None:
    """Return the first optional selection in a part that finds nothing; None if there is none."""
    pending = [node]
    while pending and evaluation.spend(_NODE_UNITS):
        part = pending.pop()
        if isinstance(part, typed_ast.FieldSelection | typed_ast.Index) and part.optional:
            value = evaluation.outcome(part).value
            if isinstance(value, Optional) and not value.present:
                return part
        pending.extend(operands(part))
    return None


def _flag_message(evaluation: Evaluation, node: TypedNode, *, value: bool, expected: bool) -> str:
    truth = "true" if value else "false"
    if not evaluation.is_open(node):
        return f"{evaluation.text(node)} is always {truth}"
    more = "" if value is expected else f", wanted {'true' if expected else 'false'}"
    return f"{evaluation.text(node)} is {truth}{more}"


def _presence_message(
    evaluation: Evaluation, node: typed_ast.FieldSelection, written: ast.Select, *, present: bool, expected: bool
) -> str:
    selected = msgspec.structs.replace(written, test=False, optional=False)
    selection = msgspec.structs.replace(node, written=selected, test=False)
    text = evaluation.text(selection)
    if not present:
        return (_absence(evaluation, node.operand, node.name) if expected else "") or f"{text} is absent"
    outcome = evaluation.outcome(selection)
    return f"{text} is {shown(outcome.value)}" if outcome.error is None else f"{text} is present"


def _comparison_message(evaluation: Evaluation, node: TypedNode, *, met: bool, expected: bool) -> str:
    """Return `A is 1, wanted 2`."""
    left, operator, right = comparison(node)
    needed = operator if expected else OPPOSITE[operator]
    if not evaluation.is_open(left) and evaluation.is_open(right):
        left, right, needed = right, left, ast.MIRRORED[needed]
    text = _fact(evaluation, left)
    right_text = _value_text(evaluation, right)
    requirement = _WANTED[needed].format(right_text)
    if evaluation.is_open(right):
        text += f", {_fact(evaluation, right, right_text)}"
    if met:
        return text if needed in ast.EQUALITY or evaluation.is_open(right) else f"{text}, {requirement}"
    return f"{text}, wanted {requirement}"


def comparison(node: TypedNode) -> tuple[TypedNode, str, TypedNode]:
    """Return left side, operator and right side of a comparison; one of compareTo with a number compares the sides of that call."""
    operator = node.written.function if isinstance(node.written, ast.CallExpression) else ""
    left, right = operands(node)
    if ordered := _order(left, operator, right):
        return operands(left)[0], ordered, operands(left)[1]
    if ordered := _order(right, ast.MIRRORED[operator], left):
        return operands(right)[1], ast.MIRRORED[ordered], operands(right)[0]
    return left, operator, right


def _order(node: TypedNode, operator: str, bound: TypedNode) -> str | None:
    """Return how the sides of compareTo, which returns -1, 0 or 1, compare where its result does so with a number."""
    call, number = node.written, bound.written
    if not (isinstance(call, ast.CallExpression) and call.function == "compareTo" and len(operands(node)) == _PAIR):
        return None
    if not (isinstance(number, ast.Literal) and type(number.value) in (int, float)):
        return None
    return _ORDERS.get(tuple(_COMPARES[operator](result, number.value) for result in (-1, 0, 1)))


def _membership_message(
    evaluation: Evaluation, element: TypedNode, values: TypedNode, *, met: bool, expected: bool
) -> str:
    container = evaluation.outcome(values).value
    # Of a map, `in` searches the keys.
    keys = [from_map_key(key) for key in container] if type(container) in MAPS else None
    text = _value_text(evaluation, values) if keys is None else shown(keys)
    if evaluation.is_open(element) or not evaluation.is_open(values):
        fact = _fact(evaluation, element)
        if evaluation.is_open(values):
            fact += f", {evaluation.text(values)} is {text}"
        return fact if met else f"{fact}, wanted {_WANTED['in' if expected else 'not in'].format(text)}"
    fact = f"{evaluation.text(values)} is {text}"
    if met:
        return fact
    wanted = f"{fact}, wanted {_value_text(evaluation, element)} {'in it' if expected else 'not to be in it'}"
    return (_absence(evaluation, values, evaluation.outcome(element).value) if expected else "") or wanted


def _call_message(evaluation: Evaluation, node: TypedNode, function: str, *, value: bool, expected: bool) -> str:
    arguments = operands(node)
    if function in _METHODS and len(arguments) == _PAIR:
        text = _fact(evaluation, arguments[0])
        requirement = _METHODS[function][0 if expected else 1].format(_value_text(evaluation, arguments[1]))
        return f"{text}, {requirement}" if value is expected else f"{text}, wanted {requirement}"
    facts = [_fact(evaluation, part) for part in arguments[:_SHOWN_ARGUMENTS] if evaluation.is_open(part)]
    text = _flag_message(evaluation, node, value=value, expected=expected)
    return f"{text}, where {', '.join(facts)}" if facts else text


def failure_message(evaluation: Evaluation, node: TypedNode, error: str) -> str:
    """Return the message about a part that failed: what does not exist and what does, or its operands with their types."""
    if isinstance(node, typed_ast.FieldSelection | typed_ast.Index):
        operand = node.operand
        holder = evaluation.outcome(operand).value
        key = _key(evaluation, node)
        text = evaluation.text(node)
        if type(holder) in MAPS:
            missing = _absence(evaluation, operand, key)
            if not missing:
                names = [shown(from_map_key(name)) for name in holder]
                missing = f"there is no {shown(key)}; {_choice(names, shown(key)) or 'the map is empty'}"
            return f"{text} does not exist: {missing}"
        what = f"{text} does not exist: {evaluation.text(operand)} is {shown(holder)}, a"
        if type(holder) in LISTS:
            return f"{what} list of {len(holder)}"
        return f"{what} plain {type_name(holder).removeprefix('kubernetes.')} without anything inside"
    facts = []
    for part in operands(node)[:_SHOWN_ARGUMENTS]:
        outcome = evaluation.outcome(part)
        if outcome.error is None and evaluation.is_open(part):
            kind = type_name(outcome.value)
            shape = "" if kind == "string" else f" ({kind.removeprefix('kubernetes.')})"
            facts.append(f"{evaluation.text(part)} is {shown(outcome.value)}{shape}")
    where = f", where {', '.join(facts)}" if facts else ""
    return f"{evaluation.text(node)} fails: {error}{where}"


def _absence(evaluation: Evaluation, holder: TypedNode, name: Any) -> str:
    """Return that the device lacks an attribute, a capacity or a domain, and what it has; empty if `holder` is no map of these."""
    path = _device_path(evaluation, holder)
    return _missing_attribute(evaluation.device, (*path, name)) if path and isinstance(name, str) else ""


def _key(evaluation: Evaluation, node: typed_ast.FieldSelection | typed_ast.Index) -> Any:
    return node.name if isinstance(node, typed_ast.FieldSelection) else evaluation.outcome(node.key).value


def _device_path(evaluation: Evaluation, node: TypedNode) -> tuple[str, ...]:
    """Return the names that lead from `device` to a part, such as ("attributes", domain); empty if there is no such path."""
    names: list[Any] = []
    while isinstance(node, typed_ast.FieldSelection | typed_ast.Index):
        names.append(_key(evaluation, node))
        node = node.operand
    if not isinstance(node, typed_ast.DeviceVariable) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(reversed(names))


def _missing_attribute(device: DeviceActivation, path: tuple[str, ...]) -> str:
    """Return the message about a path that does not exist, such as ("attributes", domain, name); empty for other paths."""
    device_map, domain, *names = path
    if device_map not in _NOUNS or len(names) > 1:
        return ""
    domains: DomainMap = device.fields[device_map]
    noun, quoted = _NOUNS[device_map], text_literal(domain)
    # A hint at the same name in another domain, or under the other map.
    elsewhere = next(
        (
            f"did you mean {access_expression(other_map, place, name)}?"
            for name in names
            for other_map in sorted(_NOUNS, key=lambda candidate: candidate != device_map)
            for place, of_place in device.fields[other_map].items()
            if name in of_place
        ),
        "",
    )
    if domain in domains:
        (name,) = names
        hint = elsewhere or _choice(list(domains[domain]), name) or "it has none there"
        return f"the device has no {noun} {text_literal(name)} of domain {quoted}; {hint}"
    before, slash, after = domain.partition("/")
    if domain in domains.get(device.driver, {}):
        hint = f"did you mean {access_expression(device_map, device.driver, domain)}?"
    elif slash and after in domains.get(before, {}):
        hint = f"did you mean {access_expression(device_map, before, after)}?"
    else:
        hint = elsewhere or _choice(list(domains), domain) or "it has none at all"
    return f"the device has no {noun} of domain {quoted}; {hint}"


def _choice(names: list[str], missing: str) -> str:
    """Return the most similar name if there is one, and the names that exist."""
    if not names:
        return ""
    folded = {name.casefold(): name for name in sorted(names)}
    close = get_close_matches(missing.casefold(), list(folded), n=1, cutoff=0.6)
    more = f" and {len(names) - MOST_ITEMS} more" if len(names) > MOST_ITEMS else ""
    existing = ", ".join(sorted(names)[:MOST_ITEMS]) + more
    return f"did you mean {folded[close[0]]}? It has {existing}" if close else f"it has {existing}"
