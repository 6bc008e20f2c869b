"""What an audit can find: the rules that API objects can break, the check that each rule belongs to, and how grave it is."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from dra_extender.cel.explain.values import shortened
from dra_extender.model.api_json import Value

_LONGEST_DETAIL: Final = 1_000
DEVICE_TWICE: Final = "device in two claims"
SHARE_TWICE: Final = "share in two claims"
CAPACITY_EXCEEDED: Final = "capacity exceeded"
COUNTER_OVERDRAWN: Final = "counter overdrawn"
TWO_NODES: Final = "device bound to a node has shares on another"
GROUPS_CONFLICT: Final = "compatibility groups in conflict"
NEIGHBOURS: Final = "neighbours not compatible"
UNREADABLE: Final = "allocation that cannot be read"
NO_FINALIZER: Final = "allocation without finalizer"
NO_CONSUMER: Final = "allocation without consumer"
FOREIGN_CONSUMER: Final = "reservation that the controller-manager cannot read"
NO_SUCH_CONSUMER: Final = "reservation of nobody"
KUBELET: Final = "kubelet would not start the pod"
ORPHANED: Final = "claim of a running pod is gone"
AWAY: Final = "bound pod without its devices"
UNUSED_EXTENDED_CLAIM: Final = "claim for extended resources that nobody uses"


class InvariantViolation(Value, frozen=True, rename=None):
    """One broken rule: which, about what object, and what was seen."""

    rule: str
    about: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}: {self.detail}"


class CheckSeverity(StrEnum):
    """ERROR: devices are in danger, or a pod does not run.  WARNING: something has no effect."""

    ERROR = "error"
    WARNING = "warning"


class Check(StrEnum):
    """What an audit looks for, by the name that metrics and answers use."""

    DOUBLE_ALLOCATION = "double_allocation"
    COUNTERS = "counters"
    CAPACITY = "capacity"
    NODE_BINDING = "node_binding"
    GROUPS = "groups"
    NEIGHBOURS = "neighbours"
    UNREADABLE_ALLOCATION = "unreadable_allocation"
    UNRESERVED_POD = "unreserved_pod"
    MISSING_CLAIM = "missing_claim"
    STALE_RESERVATION = "stale_reservation"
    ORPHANED_CLAIM = "orphaned_claim"
    STUCK_CLAIM = "stuck_claim"
    FINALIZER = "finalizer"
    CONDITIONS_OVERDUE = "conditions_overdue"
    SLICES = "slices"
    TWO_ALLOCATORS = "two_allocators"
    MISSING_DEVICE = "missing_device"
    TAINTED_DEVICE = "tainted_device"
    REQUEST_NOT_MET = "request_not_met"
    DEVICE_MISMATCH = "device_mismatch"
    ALLOCATION_NODES = "allocation_nodes"
    DEVICE_DRIFT = "device_drift"
    CLASS_WITHOUT_DEVICES = "class_without_devices"
    POLICY_WITHOUT_EFFECT = "policy_without_effect"

    @property
    def severity(self) -> CheckSeverity:
        return CheckSeverity.WARNING if self in _WARNINGS else CheckSeverity.ERROR

    @property
    def kinds(self) -> frozenset[str]:
        """Plural kinds without which it cannot be judged."""
        return _KINDS[self]


_WARNINGS: Final = frozenset({Check.DEVICE_DRIFT, Check.CLASS_WITHOUT_DEVICES, Check.POLICY_WITHOUT_EFFECT})
_CLAIMS: Final = frozenset({"resourceclaims"})
_ALLOCATIONS: Final = frozenset({"resourceclaims", "resourceslices"})
_USERS: Final = frozenset({"resourceclaims", "pods"})
_KINDS: Final[Mapping[Check, frozenset[str]]] = MappingProxyType(
    {
        Check.DOUBLE_ALLOCATION: _CLAIMS,
        Check.COUNTERS: _ALLOCATIONS,
        Check.CAPACITY: _ALLOCATIONS,
        Check.NODE_BINDING: _ALLOCATIONS,
        Check.GROUPS: _ALLOCATIONS,
        Check.NEIGHBOURS: _ALLOCATIONS,
        Check.UNREADABLE_ALLOCATION: _CLAIMS,
        Check.UNRESERVED_POD: _USERS | {"nodes"},
        Check.MISSING_CLAIM: _USERS,
        Check.STALE_RESERVATION: _USERS,
        Check.ORPHANED_CLAIM: _USERS,
        Check.STUCK_CLAIM: _USERS | {"nodes"},
        Check.FINALIZER: _CLAIMS,
        Check.CONDITIONS_OVERDUE: _CLAIMS,
        Check.SLICES: frozenset({"resourceslices"}),
        Check.TWO_ALLOCATORS: _CLAIMS,
        Check.MISSING_DEVICE: _ALLOCATIONS,
        Check.TAINTED_DEVICE: _USERS | {"resourceslices"},
        Check.REQUEST_NOT_MET: _CLAIMS,
        Check.DEVICE_MISMATCH: _ALLOCATIONS | {"deviceclasses"},
        Check.ALLOCATION_NODES: _ALLOCATIONS,
        Check.DEVICE_DRIFT: _ALLOCATIONS | {"deviceclasses"},
        Check.CLASS_WITHOUT_DEVICES: frozenset({"deviceclasses", "resourceslices"}),
        Check.POLICY_WITHOUT_EFFECT: frozenset({"resourceslices"}),
    }
)
_OF_RULES: Final[Mapping[str, tuple[Check, str]]] = MappingProxyType(
    {
        DEVICE_TWICE: (Check.DOUBLE_ALLOCATION, "device"),
        SHARE_TWICE: (Check.DOUBLE_ALLOCATION, "device"),
        CAPACITY_EXCEEDED: (Check.CAPACITY, "device"),
        TWO_NODES: (Check.NODE_BINDING, "device"),
        COUNTER_OVERDRAWN: (Check.COUNTERS, "counter set"),
        GROUPS_CONFLICT: (Check.GROUPS, "counter set"),
        NEIGHBOURS: (Check.NEIGHBOURS, "device"),
        UNREADABLE: (Check.UNREADABLE_ALLOCATION, "claim"),
        NO_FINALIZER: (Check.FINALIZER, "claim"),
        NO_CONSUMER: (Check.ORPHANED_CLAIM, "claim"),
        FOREIGN_CONSUMER: (Check.STALE_RESERVATION, "claim"),
        NO_SUCH_CONSUMER: (Check.STALE_RESERVATION, "claim"),
        KUBELET: (Check.UNRESERVED_POD, "pod"),
        ORPHANED: (Check.MISSING_CLAIM, "pod"),
        AWAY: (Check.UNRESERVED_POD, "pod"),
        UNUSED_EXTENDED_CLAIM: (Check.ORPHANED_CLAIM, "claim"),
    }
)
"""Rule -> the check, and the kind of object that `about` names."""


class AuditFinding(Value, frozen=True):
    """One thing that is wrong: the check that found it, how grave it is, the object (`claim ml/train`), and a sentence.

    `detail` has no ages, so that one and the same problem is equal in every audit.
    """

    check: Check
    severity: CheckSeverity
    about: str
    detail: str


def finding(check: Check, about: str, detail: str) -> AuditFinding:
    """Return a finding with the severity of its check; a long detail is cut."""
    return AuditFinding(check=check, severity=check.severity, about=about, detail=shortened(detail, _LONGEST_DETAIL))


def finding_of(violation: InvariantViolation) -> AuditFinding:
    check, kind = _OF_RULES[violation.rule]
    return finding(check, f"{kind} {violation.about}", f"{violation.rule}: {violation.detail}")
