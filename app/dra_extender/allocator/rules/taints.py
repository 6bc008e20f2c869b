from collections.abc import Iterable, Sequence
from typing import Final

from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.device import DeviceTaint

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration covers a taint: equal or no effect, equal or no key, and the operator agrees (KEP-5055)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.value or "") == taint.value
    return False


def untolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that keeps the device away; effects other than NoSchedule and NoExecute never do."""
    for taint in taints:
        if taint.effect in _REPELLING and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
