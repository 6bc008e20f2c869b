"""The answer to `why`, as JSON has it; the format is versioned."""

from enum import StrEnum
from typing import Final

from dra_extender.inspection.holders import Holder
from dra_extender.inspection.objects import Origin
from dra_extender.model.api_json import Value

FORMAT: Final = "dra-extender.io/why/v1"


class Cause(StrEnum):
    """What a pod waits for, or that it does not wait."""

    FINISHED = "finished"
    DELETING = "deleting"
    BOUND = "bound"
    GATED = "scheduling gates"
    NO_DEVICES = "asks for no devices"
    NOT_DEVICES = "something else than devices"
    DEVICES = "devices"
    CLAIMS = "claims"
    POD_GROUP = "PodGroup"
    CONDITIONS = "binding conditions"


class HolderShare(Value, frozen=True):
    """A holder, and what it takes of what is short: (counter, nano-units), or the groups that it brought."""

    holder: Holder
    device: str
    counters: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()


class CounterShortage(Value, frozen=True):
    """A counter that does not suffice, in nano-units."""

    counter_set: str
    counter: str
    needed: int
    left: int
    total: int


class NearestDevice(Value, frozen=True):
    """The device that came closest on the nodes of one reason: `driver/pool/device`, a sentence, and who is in the way."""

    node: str
    device: str
    detail: str = ""
    shortage: CounterShortage | None = None
    in_force: tuple[str, ...] | None = None
    holders: tuple[HolderShare, ...] = ()


class NodeReason(Value, frozen=True):
    """Nodes that do not fit for one reason: how many, the first three, and the nearest device where devices are the reason."""

    nodes: int
    examples: tuple[str, ...]
    code: str
    text: str
    nearest: NearestDevice | None = None


class Branch(Value, frozen=True):
    """What is said of one request of one claim; without names, of the pod as a whole.  `wanted` e.g. `1 x gpu.example.com`."""

    claim: str = ""
    request: str = ""
    wanted: str = ""
    reasons: tuple[NodeReason, ...] = ()


class AwaitedDevice(Value, frozen=True):
    """An allocated device whose conditions are not all true; `limit` is when the wait ends, seconds since the epoch."""

    claim: str
    device: str
    conditions: tuple[str, ...]
    state: str
    message: str = ""
    limit: float = 0.0


class NextStep(Value, frozen=True):
    """A change after which the pod fits on these nodes, as the allocator found out; `nodes` is empty where that was not tried."""

    text: str
    nodes: tuple[str, ...] = ()
    verified: str = ""


class WhyReport(Value, frozen=True):
    """Why a pod waits.  Times are seconds since the epoch, `age` seconds.

    `fitting` of `nodes` have the devices that the pod needs.  `said` is what the pod's condition PodScheduled reports.
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
    branches: tuple[Branch, ...] = ()
    awaited: tuple[AwaitedDevice, ...] = ()
    next: tuple[NextStep, ...] = ()
    notes: tuple[str, ...] = ()
