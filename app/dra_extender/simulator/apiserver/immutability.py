from typing import Any, Final

from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part

_MUTABLE_POD_FIELDS: Final = (
    "activeDeadlineSeconds",
    "tolerations",
    "schedulingGates",
    "terminationGracePeriodSeconds",
)


def check_unchanged(key: Key, old: Json, new: Json) -> None:
    """Refuse an ordinary update that changes what the API server never lets change.

    Raises:
        RequestRejectedError: the spec of a claim, template or pod (except images, tolerations and gates), or a slice's driver,
            pool or node.
    """
    before, after = part(old, "spec"), part(new, "spec")
    match key.kind:
        case StoredKind.CLAIM | StoredKind.TEMPLATE:
            _same(key, "spec", before, after)
        case StoredKind.POD:
            _same(key, "spec", _fixed(before), _fixed(after))
        case StoredKind.SLICE:
            _same(key, "spec.driver", before.get("driver"), after.get("driver"))
            _same(key, "spec.pool.name", part(before, "pool").get("name"), part(after, "pool").get("name"))
            _same(key, "spec.nodeName", before.get("nodeName"), after.get("nodeName"))
        case _:
            pass


def _same(key: Key, field: str, before: Any, after: Any) -> None:
    if before != after:
        raise RequestRejectedError(
            f'{key.kind.singular} "{key.name}" is invalid: {field}: Invalid value: field is immutable'
        )


def _fixed(spec: Json) -> Json:
    """The part of a pod's spec that no update may change."""
    fixed = {name: value for name, value in spec.items() if name not in _MUTABLE_POD_FIELDS}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{name: each[name] for name in each if name != "image"} for each in fixed[field]]
    return fixed
