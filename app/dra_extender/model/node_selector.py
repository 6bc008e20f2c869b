"""Node selectors, by the rules of kube-scheduler."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final

from dra_extender.model.api_json import ModelError, Value
from dra_extender.model.fields import Described, Items, LabelKey, LabelValue, Mark, Name, OneOf, Word
from dra_extender.model.names import MAX_LABEL, MAX_SUBDOMAIN, is_label_key, is_label_value

NODE_NAME_FIELD: Final = "metadata.name"

_LONGEST_KEY: Final = MAX_SUBDOMAIN + len("/") + MAX_LABEL
_DIGITS: Final = 19


class NodeSelectorRequirement(Value, frozen=True):
    """One `key operator values` of a node selector term."""

    key: Annotated[LabelKey, Mark.REQUIRED] = ""
    operator: Annotated[str, OneOf("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), Mark.REQUIRED] = ""
    values: tuple[LabelValue, ...] | None = None


class FieldRequirement(Value, frozen=True):
    """A requirement on the name of a node."""

    key: Annotated[Word, Mark.REQUIRED] = ""
    operator: Annotated[str, OneOf("In", "NotIn"), Mark.REQUIRED] = ""
    values: tuple[Name, ...] | None = None


class NodeSelectorTerm(Value, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], Described(tuple[FieldRequirement, ...])] = ()


class NodeSelector(Value, frozen=True):
    """Alternative terms; a node is selected if one holds."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Items(min_items=1), Mark.REQUIRED] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node is selected, as component-helpers decides: empty terms are discarded, no term means no match.

        Raises:
            ModelError: a requirement anywhere in the selector is malformed, whether or not it would have been needed.
        """
        verdicts = [
            all(label_matches(expression, labels) for expression in term.match_expressions)
            and all(_field_matches(field, name) for field in term.match_fields)
            for term in self.node_selector_terms
            if _checked(term)
        ]
        return any(verdicts)


def only_node(name: str) -> NodeSelector:
    field = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


def _checked(term: NodeSelectorTerm) -> bool:
    """Refuse malformed requirements; False for an empty term."""
    for requirement in term.match_expressions:
        check_label_requirement(requirement)
    for requirement in term.match_fields:
        if requirement.operator not in ("In", "NotIn"):
            raise ModelError(f"node selector: field {requirement.key!r} {requirement.operator!r} is not supported")
        if len(requirement.values or ()) != 1:
            raise ModelError(f"node selector: field {requirement.key!r} needs exactly one value")
    return bool(term.match_expressions or term.match_fields)


def check_label_requirement(requirement: NodeSelectorRequirement) -> None:
    """Refuse a malformed requirement for labels.

    Raises:
        ModelError: the requirement is malformed.
    """
    if len(requirement.key) > _LONGEST_KEY or not _is_key(requirement.key):
        raise ModelError(f"node selector: {requirement.key!r} is no name of a label")
    for value in requirement.values or ():
        if len(value) > MAX_LABEL or not _is_value(value):
            raise ModelError(f"node selector: {value!r} is no value of a label")
    count = len(requirement.values or ())
    match requirement.operator:
        case "In" | "NotIn":
            good = count > 0
        case "Exists" | "DoesNotExist":
            good = count == 0
        case "Gt" | "Lt":
            good = count == 1 and _integer((requirement.values or ("",))[0]) is not None
        case _:
            raise ModelError(f"node selector: {requirement.operator!r} is not an operator")
    if not good:
        raise ModelError(f"node selector: wrong values for {requirement.key!r} {requirement.operator}")


# Nothing asks about longer texts, because the caches keep the texts.
_is_key: Final = lru_cache(maxsize=4096)(is_label_key)
_is_value: Final = lru_cache(maxsize=4096)(is_label_value)


def _integer(text: str) -> int | None:
    """Return the number, if it is one of 64 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _DIGITS):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def label_matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether the labels satisfy a requirement that `check_label_requirement` does not refuse."""
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = None if value is None else _integer(value)
    bound = _integer(values[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _field_matches(requirement: NodeSelectorRequirement, name: str) -> bool:
    """Return whether a field of the node meets a requirement; of these only the name is known, others count as empty."""
    inside = (name if requirement.key == NODE_NAME_FIELD else "") in (requirement.values or ())
    return inside if requirement.operator == "In" else not inside
