"""The Kubernetes authorization libraries: device selectors have no variable of their types, so no call can be made."""

from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, Extra
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.types.declarations import Function, function, method
from dra_extender.cel.types.types import BOOL, STRING, Type, opaque
from dra_extender.cel.values.values import size_of

_AUTHORIZER: Final = opaque("kubernetes.authorization.Authorizer")
_PATH: Final = opaque("kubernetes.authorization.PathCheck")
_GROUP: Final = opaque("kubernetes.authorization.GroupCheck")
_RESOURCE: Final = opaque("kubernetes.authorization.ResourceCheck")
_DECISION: Final = opaque("kubernetes.authorization.Decision")
_CHECK_COST: Final = 350_000
_SELECTOR_BASE: Final = 10
_REQUIREMENT_COST: Final = 50


def _unreachable(*_: Any) -> Any:
    """No value of these types exists, so the overloads never match."""
    raise CelRuntimeError("no such overload")


def _check(*_: Any) -> int:
    return _CHECK_COST - 1


def _selector(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Cost of parsing a selector: a tenth per character, and that of one requirement for every two characters."""
    length = size_of(arguments[1])
    return _SELECTOR_BASE - (-length // 10) + -(-length // 2) * _REQUIREMENT_COST - 1


def _declared(name: str, result: Type, *parameters: tuple[Type, ...], extra: Extra | None = None) -> Function:
    return function(name, *(method(kinds, result, _unreachable) for kinds in parameters), extra=extra)


FUNCTIONS: Final = (
    _declared("path", _PATH, (_AUTHORIZER, STRING)),
    _declared("group", _GROUP, (_AUTHORIZER, STRING)),
    _declared("serviceAccount", _AUTHORIZER, (_AUTHORIZER, STRING, STRING)),
    _declared("resource", _RESOURCE, (_GROUP, STRING)),
    _declared("subresource", _RESOURCE, (_RESOURCE, STRING)),
    _declared("namespace", _RESOURCE, (_RESOURCE, STRING)),
    _declared("name", _RESOURCE, (_RESOURCE, STRING)),
    _declared("check", _DECISION, (_PATH, STRING), (_RESOURCE, STRING), extra=_check),
    _declared("errored", BOOL, (_DECISION,)),
    _declared("error", STRING, (_DECISION,)),
    _declared("allowed", BOOL, (_DECISION,)),
    _declared("reason", STRING, (_DECISION,)),
    _declared("fieldSelector", _RESOURCE, (_RESOURCE, STRING), extra=_selector),
    _declared("labelSelector", _RESOURCE, (_RESOURCE, STRING), extra=_selector),
)
