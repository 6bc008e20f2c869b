"""Reasons why a pod does not fit: the codes, the order of the nearest misses, the rejection as a value, and how searches end."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from dra_extender.model.api_json import Value


class Code(StrEnum):
    """A reason why a pod does not fit a node, or cannot be placed at all.

    The value is a text that kube-scheduler shows after a number of nodes; the name is a label of metrics.
    """

    CLAIM_NOT_CREATED = "claim is not created yet"
    CLAIM_MISSING = "claim does not exist"
    CLAIM_DELETING = "claim is being deleted"
    CLAIM_FOREIGN = "claim belongs to another object"
    CLAIM_NOT_STARTED = "claim was generated for a PodGroup, with which kubelets here start no pod"
    POD_GROUP_MISSING = "PodGroup does not exist"
    CLAIM_UNSUPPORTED = "claim reference is of a kind this version does not know"
    CLAIM_UNREADABLE = "claim cannot be read"
    CLAIM_HELD_ELSEWHERE = "claim is being allocated on another node"
    CLAIM_ON_OTHER_NODE = "claim is allocated for another node"
    CLAIM_FULLY_RESERVED = "claim is reserved by 256 pods already"
    CLAIM_CROWDED = (
        "claim is reserved by 200 pods already, and the node is not known to start pods reserved by PodGroup"
    )
    CLAIM_ON_TRIAL = (
        "claim is reserved by 200 pods already, and the node is just being tried for pods reserved by PodGroup"
    )
    CLASS_MISSING = "device class does not exist"
    SELECTOR_INVALID = "selector does not compile"
    SELECTOR_FAILED = "selector failed on a device"
    REQUEST_UNSUPPORTED = "request uses a feature that is off"
    TOO_MANY_DEVICES = "more devices than one claim may have"
    NODE_UNKNOWN = "node is not known yet"
    NO_DEVICES = "no devices on the node"
    NO_MATCH = "no device matches the selectors"
    OTHER_NODE = "devices are not reachable from the node"
    IN_USE = "matching devices are in use"
    TAINTED = "matching devices are tainted"
    COUNTERS = "shared counters are exhausted"
    CAPACITY = "capacity does not suffice"
    AMOUNT_INVALID = "amount of capacity cannot be used"
    ATTRIBUTE_INVALID = "derived attribute does not compile"
    ATTRIBUTE_FAILED = "derived attribute failed on a device"
    GROUPS = "compatibility groups in conflict"
    BOUND_ELSEWHERE = "devices are bound to another node"
    NEIGHBOURS = "devices are not compatible with their neighbours"
    CONSTRAINT = "constraint is not satisfied"
    POOL_INCOMPLETE = "resource pool is being updated"
    POOL_INVALID = "resource pool is invalid"
    GROUPS_OFF = "devices with compatibility groups are skipped"
    NODE_OPERATIONS = "node does not support the devices"
    NODE_ALLOCATABLE = "nodeAllocatableResources of devices are not supported"
    CLAIM_NODE_OPERATIONS = "node does not support the devices of the claim"
    COMBINATION = "no combination of devices fits"
    DEVICES_HELD = "devices are held for pods that are being bound"
    DEVICES_IN_BACKOFF = "devices have just failed for this pod and are left alone for a while"
    NODE_IN_BACKOFF = "allocations for the pod were undone there twice; left alone for a while"
    CLAIM_NOT_READY = "devices of the claim are not ready in time, and other pods use it"
    EXTENDED_RESOURCE = "cannot fit resource"
    EXTENDED_CLAIM = "pod is told to use a claim for its extended resources"
    GANG = "not enough members of the PodGroup fit at once"
    GANG_INCOMPLETE = "too few members of the PodGroup can be placed yet"
    POD_GATED = "pod has scheduling gates"
    SCHEDULER_ABSENT = "no scheduler of the pod's schedulerName has acted"
    NO_NODE = "kube-scheduler finds no node for the pod"
    GANG_ELSEWHERE = "PodGroup is planned on other nodes"
    TOO_MUCH = "more is asked for than is looked at"
    SEARCH_LIMIT = "search was stopped at its limit"


NEAREST_MISS_FIRST: Final = (
    Code.GROUPS,
    Code.NEIGHBOURS,
    Code.COUNTERS,
    Code.CAPACITY,
    Code.CONSTRAINT,
    Code.BOUND_ELSEWHERE,
    Code.TAINTED,
    Code.NODE_OPERATIONS,
    Code.NODE_ALLOCATABLE,
    Code.REQUEST_UNSUPPORTED,
    Code.GROUPS_OFF,
    Code.IN_USE,
    Code.SELECTOR_FAILED,
    Code.SELECTOR_INVALID,
    Code.COMBINATION,
)
"""The codes of devices that cannot be picked, the nearest miss first; rejections of a request come in this order."""

_OF_SELECTORS: Final = (Code.SELECTOR_FAILED, Code.SELECTOR_INVALID)
CLOSEST_FIRST: Final = (
    Code.DEVICES_IN_BACKOFF,
    Code.NODE_IN_BACKOFF,
    Code.DEVICES_HELD,
    *(code for code in NEAREST_MISS_FIRST if code not in _OF_SELECTORS),
    Code.SEARCH_LIMIT,
    *_OF_SELECTORS,
    Code.POOL_INVALID,
    Code.POOL_INCOMPLETE,
    Code.NO_MATCH,
    Code.OTHER_NODE,
    Code.EXTENDED_RESOURCE,
    Code.NO_DEVICES,
    Code.CLAIM_ON_OTHER_NODE,
    Code.CLAIM_HELD_ELSEWHERE,
    Code.GANG_ELSEWHERE,
    Code.NODE_UNKNOWN,
)
"""The codes of nodes, those of the closest nodes first: what passes by itself, devices that are meant, no such devices."""
_CLOSENESS: Final = {code: rank for rank, code in enumerate(CLOSEST_FIRST, 1)}


def closeness(code: Code) -> int:
    """Return the place of a code among those of nodes; 0 if it is about the pod, whatever the node."""
    return _CLOSENESS.get(code, 0)


_CLAIM: Final = "claim"
SUMMARY_BEGIN: Final = "node(s): "
"""How every text of this service in kube-scheduler's reports begins; no filter of kube-scheduler has such a text."""


class Rejection(Value, frozen=True, rename=None):
    """One reason: code, where it applies, and details for people.

    `claim` is the pod's name of the claim (`spec.resourceClaims[].name`), `request` as in the claim, `resource` the extended
    resource that is short.  `subject` are words for people in the place of claim and request.  `reason` and `summary` are constant
    per code, claim, request, resource and subject; amounts, groups, devices and nodes belong in `detail`.
    """

    code: Code
    claim: str = ""
    request: str = ""
    resource: str = ""
    device: str = ""
    detail: str = ""
    subject: str = ""

    @property
    def reason(self) -> str:
        """The reason, such as `claim "gpu", request "gpu": compatibility groups in conflict` or `claim "gpu" does not exist`."""
        text = f'{self.code.value} "{self.resource}"' if self.resource else self.code.value
        named = self.subject or (self.claim and f'claim "{self.claim}"')
        if self.request:
            return f"{named}: {text}" if self.subject else f'{named}, request "{self.request}": {text}'
        if not named:
            return text
        return named + text.removeprefix(_CLAIM) if text.startswith(f"{_CLAIM} ") else f"{named}: {text}"

    @property
    def summary(self) -> str:
        """The reason as the text for a node: kube-scheduler puts the number of nodes with an equal text before it."""
        return f"{SUMMARY_BEGIN}{self.reason}"

    @property
    def text(self) -> str:
        """The reason with the details that people need."""
        where = f" ({self.device})" if self.device and self.device not in self.detail else ""
        return f"{self.reason}{where}: {self.detail}" if self.detail else f"{self.reason}{where}"


Verdict = Literal["no", "node", "fatal"]


@dataclass(frozen=True, slots=True)
class NoFit:
    """The answer that the claims cannot be allocated on a node.

    `verdict` is "no" (they do not fit), "node" (they do not fit, and a pool of the node is invalid), or "fatal" (an error for the
    pod as from upstream's allocator: a selector failed, mode All met an incomplete pool, the search hit its limit, ...).
    `rejections` has at least one entry, the most helpful first; SEARCH_LIMIT stands for a search that was stopped, and never for
    "does not fit".  `at_step_limit`: the search was stopped at its limit of steps, as a further search would be.
    """

    verdict: Verdict
    rejections: tuple[Rejection, ...]
    steps: int = 0
    at_step_limit: bool = False


class SearchEndedError(Exception):
    """Ends a search with the verdict "fatal"."""

    def __init__(self, rejection: Rejection, *, at_step_limit: bool = False) -> None:
        super().__init__(rejection.text)
        self.at_step_limit = at_step_limit
        self.rejection = rejection


def time_is_up(when: str) -> SearchEndedError:
    """Return the end of a search at its deadline; `when` is for example `while a selector was running`."""
    return SearchEndedError(Rejection(code=Code.SEARCH_LIMIT, detail=f"time was up {when}"))


class SearchPaused(Exception):  # noqa: N818 - control flow as StopIteration: the caller may resume the search
    """Raised by a deadline to pause a search; the search keeps what it found, and its next run resumes it."""


DEFAULT_MAX_STEPS: Final = 200_000
"""Steps after which a search gives up with SEARCH_LIMIT."""
