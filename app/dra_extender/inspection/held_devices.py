"""The devices that a running extender holds for pods that wait, as answers list them."""

from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import wrap
from typing import Final

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import unmade_claim
from dra_extender.inspection.lines import clock_text
from dra_extender.model.api_json import Value, listed

MOST_LINES: Final = 20
"""Holds that the lines of an answer name; JSON has all."""
_INDENT: Final = "  "


class HeldDevices(Value, frozen=True):
    """Devices (`driver/pool/device`) of one node that the extender keeps free for a claim (`namespace/name`).

    `pods` are `namespace/name` of the pods that use the claim.  `until`: when the hold ends, seconds since the epoch.
    """

    claim: str
    pods: tuple[str, ...]
    node: str
    devices: tuple[str, ...]
    until: float


def held_devices(view: ClusterView) -> tuple[HeldDevices, ...]:
    """What is held and counts as taken in this view, by claim and node."""
    return tuple(sorted(_held(view), key=lambda each: (each.claim, each.node)))


def _held(view: ClusterView) -> Iterator[HeldDevices]:
    for hold in view.held.holds:
        kept = view.ledger.holds.get(hold.claim_uid)
        if kept is None:
            continue
        for at in hold.nodes:
            yield HeldDevices(
                claim=f"{hold.namespace}/{hold.claim}" if hold.claim else unmade_claim(view.ledger, kept),
                pods=tuple(name or uid for name, uid in hold.pods),
                node=at.node,
                devices=tuple(f"{each.driver}/{each.pool}/{each.device}" for each in at.devices),
                until=hold.until,
            )


def held_lines(held: Sequence[HeldDevices], width: int) -> Iterator[str]:
    """E.g. `held for ml/first until 09:47:05Z: gpu-0 on n1`, wrapped; nothing where nothing is held."""
    for each in islice(held, MOST_LINES):
        devices = listed([name.rpartition("/")[2] for name in each.devices])
        pods = listed(each.pods) or f"claim {each.claim}"
        text = f"held for {pods} until {clock_text(each.until)}: {devices} on {each.node}"
        yield from wrap(text, width, subsequent_indent=_INDENT, break_long_words=False)
    if len(held) > MOST_LINES:
        yield f"and {len(held) - MOST_LINES} more holds"
