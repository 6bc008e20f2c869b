from collections.abc import Mapping
from typing import Final

from app.model.base import ModelError, Value

NODE_NAME_FIELD: Final = "metadata.name"


class NodeSelectorRequirement(Value, frozen=True):
    """One `key operator values` of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Value, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Value, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node is selected, by the rules of component-helpers (empty terms are discarded, no term means no match).

        Raises:
            ModelError: a requirement anywhere in the selector is malformed, whether or not it would have been needed.
        """
        verdicts = [
            all(_label_matches(each, labels) for each in term.match_expressions)
            and all(_field_matches(each, name) for each in term.match_fields)
            for term in self.node_selector_terms
            if _checked(term)
        ]
        return any(verdicts)


def only_node(name: str) -> NodeSelector:
    """The selector that names exactly one node."""
    field = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


def _checked(term: NodeSelectorTerm) -> bool:
    """Refuse malformed requirements; False for an empty term."""
    for requirement in term.match_expressions:
        _check_label_requirement(requirement)
    for requirement in term.match_fields:
        if requirement.key != NODE_NAME_FIELD or requirement.operator not in ("In", "NotIn"):
            raise ModelError(f"node selector: field {requirement.key!r} {requirement.operator!r} is not supported")
        if len(requirement.values or ()) != 1:
            raise ModelError(f"node selector: field {requirement.key!r} needs exactly one value")
    return bool(term.match_expressions or term.match_fields)


def _check_label_requirement(requirement: NodeSelectorRequirement) -> None:
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


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def _label_matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    wanted = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = None if value is None else _integer(value)
    bound = _integer(wanted[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _field_matches(requirement: NodeSelectorRequirement, name: str) -> bool:
    inside = name in (requirement.values or ())
    return inside if requirement.operator == "In" else not inside
