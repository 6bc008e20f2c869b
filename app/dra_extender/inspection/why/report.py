"""The answer to `why POD`, as JSON has it; the format is versioned."""

from enum import StrEnum
from typing import Final

from dra_extender.inspection.holders import Holder
from dra_extender.inspection.objects import Origin
from dra_extender.model.api_json import Value
from dra_extender.model.device import device_id_of
from dra_extender.model.metadata import Moment

FORMAT: Final = "dra-extender.io/why/v1"
DEVICES_ONLY: Final = "devices only"
DEVICES_AND_NODES: Final = "devices and nodes"
"""How a next step was tried; see NextStep."""
EXAMPLES: Final = 3
"""How many nodes, devices or sentences of a kind are named where there may be many."""
CORRECTED: Final = "the name is right"
"""When something stands in the way that a misspelt name hides; sentences for people begin with `once`."""
ADMITTED: Final = "its gates are removed"
"""When it stands in the way of a pod with scheduling gates."""


class Cause(StrEnum):
    """What a pod waits for, or that it does not wait.

    UNKNOWN: objects that decide this could not be read.
    NODES: it would get its devices on nodes that it may not use for another reason, such as CPU, taints or affinity.
    """

    FINISHED = "finished"
    DELETING = "deleting"
    BOUND = "bound"
    GATED = "scheduling gates"
    NO_DEVICES = "asks for no devices"
    NOT_DEVICES = "something else than devices"
    NODES = "nodes"
    DEVICES = "devices"
    CLAIMS = "claims"
    POD_GROUP = "PodGroup"
    CONDITIONS = "binding conditions"
    UNKNOWN = "not known"


class ReasonKind(StrEnum):
    """What a reason of kube-scheduler against nodes is about."""

    RESOURCES = "resources"
    TAINTS = "taints"
    AFFINITY = "affinity"
    UNSCHEDULABLE = "unschedulable"
    PORTS = "ports"
    OTHER_PODS = "other pods"
    VOLUMES = "volumes"
    DEVICES = "devices"
    OTHER = "other"


class ReportedReason(Value, frozen=True):
    """A reason in the message of the condition PodScheduled; `nodes` is 0 where it is said of all of them."""

    nodes: int
    text: str
    kind: ReasonKind


class UnjudgedFilter(Value, frozen=True):
    """What only kube-scheduler judges of a pod, such as `affinity to other pods`."""

    kind: ReasonKind
    text: str


class HolderShare(Value, frozen=True):
    """A holder, and what it takes of what is short: (counter or capacity, nano-units), or the groups that it brought."""

    holder: Holder
    device: str
    counters: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()


class CounterNeed(Value, frozen=True):
    """What a device needs of a counter of its counter set, what is left of it, and what there is in all; nano-units."""

    counter_set: str
    counter: str
    needed: int
    left: int
    total: int


class CapacityNeed(Value, frozen=True):
    """What a request needs of a capacity of a device that several claims may share; nano-units."""

    capacity: str
    needed: int
    left: int
    total: int


class SelectorOrigin(StrEnum):
    """Whose selector it is."""

    CLASS = "class"
    REQUEST = "request"


class UnmetSelector(Value, frozen=True):
    """A selector that is false on a device; `number` counts the selectors of the class or of the request from 1.

    `detail` is the comparison that fails; empty for the first selector of a device, whose detail is that of the device.
    """

    origin: SelectorOrigin
    number: int
    expression: str
    detail: str = ""


class NearestDevice(Value, frozen=True):
    """The device that came closest on the nodes of one reason: `driver/pool/device`, a sentence, and who is in the way.

    `detail` is the comparison that fails with both values, or what keeps the device away.  `selector` is the first one that is
    false, `further_selectors` are the others.  `shortage` is the counter that does not suffice, `capacity` the first capacity,
    `further_capacities` are the others.  Where groups conflict on `counter_set`, the device has the `declared` ones and the holders
    those `in_force` (None: they have none);
    `sufficient` are the counters of the set if all of them would suffice, else `insufficient` is the first that would not, of
    any set, and `drawing` hold it.  `taints` keep the device away.
    """

    node: str
    device: str
    detail: str = ""
    selector: UnmetSelector | None = None
    shortage: CounterNeed | None = None
    capacity: CapacityNeed | None = None
    counter_set: str = ""
    declared: tuple[str, ...] = ()
    in_force: tuple[str, ...] | None = None
    sufficient: tuple[CounterNeed, ...] = ()
    taints: tuple[str, ...] = ()
    holders: tuple[HolderShare, ...] = ()
    further_selectors: tuple[UnmetSelector, ...] = ()
    insufficient: CounterNeed | None = None
    drawing: tuple[HolderShare, ...] = ()
    further_capacities: tuple[CapacityNeed, ...] = ()

    @property
    def device_id(self) -> tuple[str, str, str]:
        """Driver, pool and device."""
        return device_id_of(self.device)


class DeviceCount(Value, frozen=True):
    """The node with most devices that the request could have by themselves, how many it wants, and how many its selectors mean."""

    node: str
    available: int
    wanted: int
    meant: int = 0


class ConstraintValues(Value, frozen=True):
    """A constraint of the claim, and how many devices of the node have each value; devices without the attribute under ``."""

    constraint: str
    node: str
    values: tuple[tuple[str, int], ...]


class PoolGap(Value, frozen=True):
    """An incomplete pool: how many slices of its newest generation there are, and how many it declares."""

    driver: str
    pool: str
    generation: int
    slices: int
    expected: int


class NodeReason(Value, frozen=True):
    """Nodes that do not fit for one reason: how many, the first three, and the nearest device where devices are the reason.

    `count` is set where too few devices are there at once, `constraint` where a constraint excludes them, `pool` where a pool is
    incomplete.  `further` are sentences about what else stands in the way there.
    """

    nodes: int
    examples: tuple[str, ...]
    code: str
    text: str
    nearest: NearestDevice | None = None
    count: DeviceCount | None = None
    constraint: ConstraintValues | None = None
    pool: PoolGap | None = None
    further: tuple[str, ...] = ()


class Branch(Value, frozen=True):
    """What is said of one request of one claim; without names, of the pod as a whole.  `wanted` e.g. `1 x gpu.example.com`.

    `subject`: what asks, where that is no claim of the pod's spec: `extended resource example.com/gpu of container "main"`, or a
    claim of the member that blocks the gang.  `after_correction`: what stands in the way once misspelt names, failing selectors
    and claims that are being deleted are replaced, or another request is changed, on nodes that `reasons` of this or another branch
    count already.
    """

    claim: str = ""
    request: str = ""
    subject: str = ""
    wanted: str = ""
    reasons: tuple[NodeReason, ...] = ()
    after_correction: tuple[NodeReason, ...] = ()


class AwaitedDevice(Value, frozen=True):
    """An allocated device whose conditions are not all true.  `subject`: as in Branch.

    `since` is when it was allocated (None if that is not recorded), `limit` when the wait ends.
    `assumed_timeout` is the default binding timeout in seconds, by which `limit` goes where that of the service is not known.
    """

    claim: str
    device: str
    conditions: tuple[str, ...]
    state: str
    limit: Moment
    message: str = ""
    request: str = ""
    subject: str = ""
    assumed_timeout: float | None = None
    since: Moment | None = None


class DeviceCondition(Value, frozen=True):
    """A condition that a driver reports of an allocated device (`status.devices[].conditions` of the claim)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodDevice(Value, frozen=True):
    """A device (`driver/pool/device`) that a claim (`namespace/name`) of a bound pod has.

    `subject` is what asks (`claim gpu`, or `extended resource example.com/gpu of container "main"`), `request` the request of the
    claim with its alternative (`gpu/small`).  `since`: when it was allocated, None if nothing records it.
    """

    subject: str
    claim: str
    request: str
    device: str
    since: Moment | None = None
    conditions: tuple[DeviceCondition, ...] = ()


class PreferredAttribute(Value, frozen=True):
    """An attribute in which the devices of a claim (the pod's name for it) should agree, and how many have each value.

    Devices without the attribute are under an empty value.
    """

    claim: str
    attribute: str
    agree: bool
    values: tuple[tuple[str, int], ...] = ()


class NodeScore(Value, frozen=True):
    """What prioritize would give a node for the pod as things are now, from 0 to 10, and the terms of the score.

    `alternatives` are the points for early alternatives, `waits`: a device has binding conditions, `joined` of the `counter_sets`
    that the devices draw on are in use by others, `loss` is what the placement costs the expected pods (docs/concepts/scoring.md).
    In `preferences` attributes the devices should agree, in `aligned` of these they do.
    """

    node: str
    score: int
    alternatives: int = 0
    waits: bool = False
    counter_sets: int = 0
    joined: int = 0
    loss: float | None = None
    preferences: int = 0
    aligned: int = 0


class MemberState(StrEnum):
    """How a member of a gang stands: it runs, has its devices allocated, would be placed, or is what blocks the gang."""

    BOUND = "bound"
    ALLOCATED = "allocated"
    PLACED = "ok"
    BLOCKED = "blocked"
    WAITING = "waiting"
    UNREADY = "not ready"


class GangMembers(Value, frozen=True):
    """Members of a gang in one state, by name, with their nodes in the same order; `text` says why they are in it.

    `until` is when the devices that are held for them become free again.
    """

    state: MemberState
    names: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    text: str = ""
    until: Moment | None = None


class GangReport(Value, frozen=True):
    """The gang of a pod: how many members it needs at once (`min_count`), how many exist, and how many have a place."""

    pod_group: str
    min_count: int
    total: int
    placed: int
    members: tuple[GangMembers, ...] = ()


class ReportedEvent(Value, frozen=True):
    """A Warning Event about an object (`Pod ml/train`) that says why the pod waits; `age` in seconds since it was last reported."""

    subject: str
    reason: str
    message: str = ""
    reporter: str = ""
    age: float | None = None


class EndedPod(Value, frozen=True):
    """A pod (`namespace/name`) that a step ends.  `owner` (`Job train-1`) is empty if it has none, `age` in seconds.

    `gang` is the name of the PodGroup with which the pod was scheduled as one of several; empty if it is of none.  `budget` is the
    name of the PodDisruptionBudget that forbids to evict the pod now; empty if none does that was read.
    `a beside b`: no pod that has several budgets may be evicted.  `preemption` says what kube-scheduler's preemption does about a
    pod of lower priority than the one that waits; empty if that is not known.
    """

    pod: str
    owner: str = ""
    priority: int = 0
    age: float | None = None
    gang: str = ""
    budget: str = ""
    preemption: str = ""


class NextStep(Value, frozen=True):
    """A change after which the pod fits on these nodes (the first three); `nodes` is empty where that was not tried.

    `verified` is DEVICES_AND_NODES, or DEVICES_ONLY where nodes could not be judged or refuse the pod for another reason.
    `untried` are kinds of reasons that kube-scheduler reports or may have, and that no trial judges; with them `verified` is
    DEVICES_ONLY.
    `harmful`: the change takes something from somebody, such as the pods in `ends`.
    """

    text: str
    nodes: tuple[str, ...] = ()
    verified: str = ""
    untried: tuple[ReasonKind, ...] = ()
    harmful: bool = False
    ends: tuple[EndedPod, ...] = ()


class WhyReport(Value, frozen=True):
    """Why a pod waits.  `age` is in seconds.

    `fitting` of `nodes` have the devices that the pod needs; nodes that are not ready, cordoned, tainted against the pod, or being
    deleted do not count.  `said` is what the pod's condition PodScheduled reports, `reported` its reasons one by one, `unjudged`
    what else only kube-scheduler judges.  `scheduler_absent` says that no scheduler of the pod's `schedulerName` has acted.
    `events` are what other components report.  `beside` are the nodes that the pod may not use for reasons beside devices, as far
    as `why` judges them.  `gang` is the plan of its PodGroup.  `usable` are the first nodes on which the pod fits now, `unbound`
    says why it is not bound there yet.  `devices` are those of a bound pod; if it does not run yet, `refused` says why its kubelet
    would not start it.  `scores` are those of its node and of the best other one, if there is any; empty where they are not known.
    `preferred` are the attributes in which the devices of a bound pod should agree.
    """

    format: str
    pod: str
    cause: Cause
    summary: str
    origin: Origin
    scheduler: str = ""
    age: float | None = None
    node: str = ""
    said: str = ""
    nodes: int = 0
    fitting: int = 0
    reported: tuple[ReportedReason, ...] = ()
    scheduler_absent: str = ""
    events: tuple[ReportedEvent, ...] = ()
    beside: tuple[NodeReason, ...] = ()
    branches: tuple[Branch, ...] = ()
    awaited: tuple[AwaitedDevice, ...] = ()
    devices: tuple[PodDevice, ...] = ()
    refused: tuple[str, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    preferred: tuple[PreferredAttribute, ...] = ()
    gang: GangReport | None = None
    usable: tuple[str, ...] = ()
    unbound: tuple[str, ...] = ()
    unjudged: tuple[UnjudgedFilter, ...] = ()
    next: tuple[NextStep, ...] = ()
    notes: tuple[str, ...] = ()
