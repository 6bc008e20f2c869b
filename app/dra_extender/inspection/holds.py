"""What a running extender holds for pods that wait: put into a ledger, and said in answers."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import wrap
from typing import Final

from dra_extender.inspection.lines import clock_text
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement
from dra_extender.model.api_json import Value, listed
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.claims.extended_claims import name_for
from dra_extender.scheduling.hold_report import HoldReport

_MOST_NAMED: Final = 3
MOST_LINES: Final = 20
"""Holds that the lines of an answer name; JSON has all."""
_FURTHER_INDENT: Final = "  "


class HeldDevices(Value, frozen=True):
    """Devices (`driver/pool/device`) of one node that the extender keeps free for a claim (`namespace/name`).

    `pods` are `namespace/name` of the pods that use the claim.  `until`: when the hold ends.
    """

    claim: str
    pods: tuple[str, ...]
    node: str
    devices: tuple[str, ...]
    until: Moment


def held_devices(ledger: Ledger, report: HoldReport) -> tuple[HeldDevices, ...]:
    """Return what a running extender holds and what counts as taken in the ledger, by claim and node."""
    found = (
        HeldDevices(
            claim=f"{hold.namespace}/{hold.claim}" if hold.claim else unmade_claim(ledger, kept),
            pods=tuple(name or uid for name, uid in hold.pods),
            node=at.node,
            devices=tuple(f"{device.driver}/{device.pool}/{device.device}" for device in at.devices),
            until=hold.until,
        )
        for hold in report.holds
        if (kept := ledger.holds.get(hold.claim_uid)) is not None
        for at in hold.nodes
    )
    return tuple(sorted(found, key=lambda each: (each.claim, each.node)))


def held_lines(held: Sequence[HeldDevices], width: int) -> Iterator[str]:
    """E.g. `held for ml/first until 09:47:05Z: gpu-0 on n1`, wrapped; nothing where nothing is held."""
    for each in islice(held, MOST_LINES):
        devices = listed([name.rpartition("/")[2] for name in each.devices])
        pods = listed(each.pods) or f"claim {each.claim}"
        text = f"held for {pods} until {clock_text(each.until)}: {devices} on {each.node}"
        yield from wrap(text, width, subsequent_indent=_FURTHER_INDENT, break_long_words=False)
    if len(held) > MOST_LINES:
        yield f"and {len(held) - MOST_LINES} more holds"


def place_holds(ledger: Ledger, report: HoldReport) -> None:
    """Put the holds into a ledger that has the objects.

    Holds of pods that do not wait any more, of allocated claims, and those whose end has come are left out; the others do not
    expire in the ledger: the time of an inspection stands still.
    """
    for hold in report.holds:
        if hold.until <= report.taken_at:
            continue
        record = ledger.claims.by_uid(hold.claim_uid)
        pods = {uid for _, uid in hold.pods if (pod := ledger.pods.by_uid(uid)) is not None and not pod.node_name}
        if not pods or (record is not None and record.claim.status.allocation is not None):
            continue
        placements = {
            held.node: ClaimPlacement(allocation=AllocationResult(), holdings=held.devices) for held in hold.nodes
        }
        versions = {node: ledger.state.version(node) for node in placements}
        ledger.hold_book.place(
            Hold(hold.claim_uid, placements, versions, math.inf, pods, namespace=hold.namespace, unit=min(pods))
        )


def held_notes(report: HoldReport, pod: str, pod_uid: str, group: str) -> Iterator[str]:
    """What the extender keeps for a pod (`namespace/name`, UID) and plans for its PodGroup (`namespace/name`), in sentences."""
    for hold in report.holds:
        if any(uid == pod_uid for _, uid in hold.pods):
            nodes = listed(sorted(held.node for held in hold.nodes), _MOST_NAMED)
            yield f"devices for claim {hold.claim} are held on {nodes} until {clock_text(hold.until)}"
    for plan in report.plans:
        if plan.pod_group == group:
            node = next((member.node for member in plan.members if member.pod == pod), "")
            yield (
                f"the plan of PodGroup {group} has {len(plan.members)} members, {plan.needed} are needed, "
                f"{plan.waiting} wait for the others; {f'its node for this pod is {node}' if node else 'this pod is not in it'}"
            )


def unmade_claim(ledger: Ledger, hold: Hold) -> str:
    """`namespace/name` of a claim for extended resources that a bind will make; without a name if its pod is not known."""
    pods = (pod for uid in sorted(hold.pods) if (pod := ledger.pods.by_uid(uid)) is not None)
    return f"{hold.namespace}/{next(map(name_for, pods), '')}"
