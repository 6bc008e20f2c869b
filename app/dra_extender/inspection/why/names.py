"""What pods and selectors name and does not exist, and which names were probably meant."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.analysis.corrections import DEVICE_MAPS, PublishedNames
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.explain.nearness import may_hold
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import meant_name, names_there
from dra_extender.inspection.objects import unread
from dra_extender.model.api_json import listed
from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_DEVICES: Final = 20_000
_MOST_NAMES: Final = 1_000


def existing_names(view: ClusterView, pod: Pod, rejection: Rejection) -> str:
    """Return what exists in the place of the class, claim, template or PodGroup that a rejection says does not; else empty.

    That is where else an object of the name is, otherwise what exists in its namespace.
    """
    if rejection.code is Code.CLASS_MISSING:
        return names_there(re.split("[ /]", rejection.detail)[-1], view.ledger.classes)
    missing = missing_object(view, pod, rejection)
    if missing is None:
        return ""
    kind, name = missing
    elsewhere = [f"{namespace}/{name}" for namespace in sorted(view.namespaces_of(kind, name))]
    return f"; there is {listed(elsewhere)}" if elsewhere else names_there(name, view.names(kind, pod.namespace))


def missing_object(view: ClusterView, pod: Pod, rejection: Rejection) -> tuple[StoredKind, str] | None:
    """Return kind and name of the claim, template or PodGroup that a rejection says does not exist; None if it says none."""
    in_namespace = rejection.detail.startswith(f"{pod.namespace}/")
    missing = rejection.detail.rpartition("/")[2]
    match rejection.code:
        case Code.CLAIM_MISSING if in_namespace:
            return StoredKind.CLAIM, missing
        case Code.CLAIM_NOT_CREATED if rejection.detail.startswith("from template "):
            template = rejection.detail.split()[2]
            exists = template in view.names(StoredKind.TEMPLATE, pod.namespace)
            return None if exists else (StoredKind.TEMPLATE, template)
        case Code.POD_GROUP_MISSING if in_namespace:
            return StoredKind.POD_GROUP, missing
    return None


def published_names(view: ClusterView) -> PublishedNames:
    """Return the names of devices, as far as the first ones show them."""
    words: dict[str, None] = {}
    domains: dict[tuple[str, str], set[str]] = {}
    devices = ((part.driver, device) for part in view.ledger.slices.by_name.values() for device in part.devices)
    complete = not unread(view.origin, {StoredKind.SLICE})
    for number, (driver, device) in enumerate(devices):
        if number == _MOST_DEVICES or len(words) > _MOST_NAMES:
            complete = False
            break
        words[driver] = None
        for kind, published in zip(DEVICE_MAPS, (device.attributes, device.capacity), strict=True):
            for full_name, _ in published:
                domain, _, name = full_name.rpartition("/")
                words.update(dict.fromkeys((domain or driver, name)))
                domains.setdefault((kind, name), set()).add(domain or driver)
    return PublishedNames(words, domains, partial(meant_name, names=words), complete)


def may_all_hold(programs: Iterable[Program | CelCompileError], driver: str) -> bool:
    """Return whether all these selectors can be true for a device of the driver; those that do not compile do not count."""
    return all(
        may_hold(program.expression, driver, program.emulate) for program in programs if isinstance(program, Program)
    )
