"""The answer to `what-if`, as JSON has it; the format is versioned."""

from enum import StrEnum
from typing import Final

from dra_extender.inspection.holders import HeldDevices
from dra_extender.inspection.objects import Origin
from dra_extender.inspection.why.report import Branch, GangReport, NodeReason
from dra_extender.model.api_json import Value

FORMAT: Final = "dra-extender.io/what-if/v1"


class OutcomeKind(StrEnum):
    """Where a pod stands: it runs on a node already, it would be bound to one, it waits, or it is not there."""

    RUNS = "runs"
    LANDS = "lands"
    WAITS = "waits"
    ENDED = "ended"
    ABSENT = "absent"


class Fate(StrEnum):
    """What becomes of a claim when a pod that used it ends.

    KEPT: other consumers keep the allocation.  RELEASED: the pod was the last consumer, the allocation ends.  DELETED: the claim
    was the pod's own.  GENERATED: a new claim is made from the template.
    """

    KEPT = "kept"
    RELEASED = "released"
    DELETED = "deleted"
    GENERATED = "generated"


class ClaimFate(Value, frozen=True):
    """What becomes of one claim; `users` are `namespace/name` of the consumers that keep it."""

    claim: str
    fate: Fate
    users: tuple[str, ...] = ()


class ReasonCount(Value, frozen=True):
    """For how many nodes one reason holds; 0 where it holds for the pod, whatever the node."""

    nodes: int
    text: str


class PodOutcome(Value, frozen=True):
    """Where a pod stands.

    `devices` are `driver/pool/device`, by claim.  `reasons`: why it waits, most nodes first.  `conditions`: binding conditions that
    a driver has to report before it is bound; they are taken as reported.  `unjudged`: what may keep a pod that lands as far as
    devices and the judged filters go, each as half a sentence.
    """

    kind: OutcomeKind
    node: str = ""
    devices: tuple[str, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()
    conditions: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()


class PodRow(Value, frozen=True):
    """A pod before and after the changes; without changes `before` is where it stands now.

    `evicted`: a drain or an end of the pod moves it.  `claims`: what becomes of the claims that it had.  `plain`: it asks for no
    devices; such pods are placed after the others.  `gang`: the PodGroup (`namespace/name`) whose members land together or not at
    all; empty if the pod is in none.
    """

    pod: str
    before: PodOutcome
    after: PodOutcome
    evicted: bool = False
    claims: tuple[ClaimFate, ...] = ()
    plain: bool = False
    gang: str = ""

    @property
    def differs(self) -> bool:
        """Return whether the changes move the pod, or let it wait or land."""
        return self.evicted or (self.before.kind, self.before.node) != (self.after.kind, self.after.node)


class WaitingGang(Value, frozen=True):
    """Why a gang waits after the changes, as `why` says it.

    `summary`: how many members have a place, as half a sentence.  `branches` and `beside`: the reasons against the member that
    blocks the gang.  `notes`: what keeps members apart that have devices, and limits that were reached.
    """

    summary: str
    gang: GangReport
    branches: tuple[Branch, ...] = ()
    beside: tuple[NodeReason, ...] = ()
    notes: tuple[str, ...] = ()


class StrandedCounter(Value, frozen=True):
    """What is left of a counter, in nano-units."""

    counter_set: str
    counter: str
    left: int
    total: int


class Stranded(Value, frozen=True):
    """Devices and counters of one node that no further copy can use, for one reason.

    `devices` are `driver/pool/device`.  `text` says what keeps a copy away.  `counters` of a counter set from which a device that
    the pod means draws.
    """

    node: str
    code: str
    text: str
    devices: tuple[str, ...] = ()
    counters: tuple[StrandedCounter, ...] = ()


class NodeFill(Value, frozen=True):
    """How many copies landed on a node."""

    node: str
    copies: int


class Fill(Value, frozen=True):
    """How many more copies fit, where, why no more, and what is left that none can use.

    `bounded`: the count stopped at its bound, not because no more fit; then there is no reason, and nothing counts as stranded.
    `unjudged` as in PodOutcome.  `stranded_in_part`: not all nodes were looked at, because the pod's selectors take too long.
    """

    subject: str
    copies: int
    bounded: bool = False
    nodes: tuple[NodeFill, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    stranded_in_part: bool = False
    unjudged: tuple[str, ...] = ()


class WhatIfReport(Value, frozen=True):
    """What would happen: each pod that a change concerns or that waits, before and after, and the fill that was asked for.

    `changes` are sentences, in the order in which they were applied.  `verified`: empty if node fit was checked as well, else what
    was not.  `held`: what a running extender holds for pods that are there after the changes.  `gangs`: why gangs wait whose
    members the changes concern; without changes, why gangs wait.
    """

    format: str
    origin: Origin
    changes: tuple[str, ...] = ()
    pods: tuple[PodRow, ...] = ()
    fill: Fill | None = None
    verified: str = ""
    held: tuple[HeldDevices, ...] = ()
    notes: tuple[str, ...] = ()
    gangs: tuple[WaitingGang, ...] = ()
