from collections.abc import Sequence
from typing import Final

import msgspec

from app.model.node import node_from
from app.model.pod import pod_from
from app.model.resource_claim import claim_from
from app.model.resource_slice import SliceReader
from app.scheduling.audit import Finding, audit
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

NEVER: Final = frozenset({"device in two claims", "counter overdrawn", "compatibility groups in conflict"})
"""Rules that hold at every moment; the others may be broken while a controller still cleans up after a pod."""


async def findings(api: ApiClient) -> tuple[Finding, ...]:
    """What is wrong with the allocations of the cluster, by its API objects alone."""
    # Claims first: what a claim read now refers to cannot be younger than what is read afterwards.
    claims = [claim_from(each) for each in await api.list(RESOURCE_CLAIMS)]
    reader = SliceReader()
    slices = [reader.read(msgspec.json.encode(each)) for each in await api.list(RESOURCE_SLICES)]
    pods = [pod_from(each) for each in await api.list(PODS)]
    nodes = [node_from(each) for each in await api.list(NODES)]
    return audit(claims, slices, pods, nodes)


async def forbidden_findings(api: ApiClient) -> list[Finding]:
    """The findings that must not exist even while everything moves; printed too."""
    return _printed([each for each in await findings(api) if each.rule in NEVER])


async def expect_sound(api: ApiClient, seconds: float = 15.0) -> None:
    """No finding: of the rules in NEVER at once, of the others within `seconds`, when controllers have done their part.

    What is found in the end is printed.
    """
    last: tuple[Finding, ...] = ()

    async def sound() -> bool:
        nonlocal last
        last = await findings(api)
        assert _printed([each for each in last if each.rule in NEVER]) == []
        return not last

    try:
        await api.wait_for(sound, seconds, "the audit has no finding")
    except TimeoutError:
        _printed(last)
        raise


def _printed(found: Sequence[Finding]) -> list[Finding]:
    for each in found:
        print(each)
    return list(found)
