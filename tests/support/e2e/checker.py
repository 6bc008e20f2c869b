"""The invariants as a program over API objects only: nothing here knows how the decisions were made."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from dra_extender.allocator.state.features import Features
from dra_extender.inspection.audit.findings import Invariant, InvariantViolation
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.node import node_from
from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.options import Options

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from tests.support.audit.raw_objects import audit
from tests.support.audit.waiting_pods import waiting_pods
from tests.support.model.reading import pod_from

NEVER: Final = frozenset(
    {
        "allocation that cannot be read",
        "allocation without finalizer",
        "capacity exceeded",
        "compatibility groups in conflict",
        "counter overdrawn",
        "device in two claims",
        "neighbours not compatible",
        "share in two claims",
    }
)
"""Rules that hold at every moment; the others may be broken while a controller still cleans up after a pod."""
NEVER_TWICE: Final = frozenset({Invariant.AWAY, Invariant.KUBELET})
"""As NEVER, but about objects of several kinds: one look may meet them at different moments."""
_LEDGER: Final = (NODES, DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_SLICES, POD_GROUPS, RESOURCE_CLAIMS, PODS)
_NOT_FOUND = 404
_AUTO: Final = GroupEntryPolicy.AUTO
_SECONDS: Final = 60.0


async def findings(api: ApiClient, kubelets: GroupEntryPolicy = _AUTO) -> tuple[InvariantViolation, ...]:
    """What is wrong with the allocations of the cluster, by its API objects alone.

    `kubelets`, here and below: which of them accept claims of PodGroups (see `audit`).
    """
    # Claims first: what a claim read now refers to cannot be younger than what is read afterwards.
    claims = [claim_from(each) for each in await api.list(RESOURCE_CLAIMS)]
    reader = SliceReader()
    slices = [reader.read(each) for each in await _raw(api, RESOURCE_SLICES)]
    pods = [pod_from(each) for each in await api.list(PODS)]
    nodes = [node_from(each) for each in await api.list(NODES)]
    return audit(claims, slices, pods, nodes, await _pod_groups(api), kubelets, Options().own_namespace)


async def forbidden_findings(api: ApiClient, kubelets: GroupEntryPolicy = _AUTO) -> list[InvariantViolation]:
    """The findings that must not exist even while everything moves; printed too."""
    found = await findings(api, kubelets)
    doubtful = [each for each in found if each.rule in NEVER_TWICE]
    again = await findings(api, kubelets) if doubtful else ()
    return _printed([*(each for each in found if each.rule in NEVER), *(each for each in doubtful if each in again)])


async def findings_at_rest(api: ApiClient, kubelets: GroupEntryPolicy = _AUTO) -> tuple[InvariantViolation, ...]:
    """As `findings`, with what must not be left when everything has come to rest: pods that wait although devices are free, and
    reservations of pods that wait.
    """
    ledger = Ledger()
    for resource in _LEDGER:
        feed = sinks_of(ledger)[resource.plural]
        for each in await _raw(api, resource):
            feed.changed(each)
    waiting = waiting_pods(ledger, NodeAllocator(ledger, Features(), Options()))
    return (*await findings(api, kubelets), *await asyncio.to_thread(tuple, waiting))


async def expect_sound(api: ApiClient, kubelets: GroupEntryPolicy = _AUTO) -> None:
    """No finding: of the rules in NEVER at once, of the others a little later, when controllers have done their part.

    What is found in the end is printed.
    """
    await _expect_none(api, partial(findings, api, kubelets))


async def expect_rest(api: ApiClient, kubelets: GroupEntryPolicy = _AUTO) -> None:
    """As `expect_sound`, and every pod that fits is bound, and nothing is kept for pods that wait."""
    await _expect_none(api, partial(findings_at_rest, api, kubelets))


async def _expect_none(api: ApiClient, look: Callable[[], Awaitable[tuple[InvariantViolation, ...]]]) -> None:
    last: tuple[InvariantViolation, ...] = ()

    async def sound() -> bool:
        nonlocal last
        last = await look()
        assert _printed([each for each in last if each.rule in NEVER]) == []
        return not last

    try:
        await api.wait_for(sound, _SECONDS, "the audit has no finding")
    except TimeoutError:
        _printed(last)
        raise


async def _raw(api: ApiClient, resource: Resource) -> list[bytes]:
    """All objects of a kind as JSON; none of a kind that is not served."""
    try:
        return [msgspec.json.encode(each) for each in await api.list(resource)]
    except ApiError as refused:
        if refused.status != _NOT_FOUND:
            raise
        return []


async def _pod_groups(api: ApiClient) -> list[PodGroup] | None:
    """All PodGroups; None where they are not served."""
    try:
        return [read_pod_group(msgspec.json.encode(each)) for each in await api.list(POD_GROUPS)]
    except ApiError as refused:
        if refused.status != _NOT_FOUND:
            raise
        return None


def _printed(found: Sequence[InvariantViolation]) -> list[InvariantViolation]:
    for each in found:
        print(each)
    return list(found)
