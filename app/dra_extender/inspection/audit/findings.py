"""What an audit can find: the rules that API objects can break, the check that each rule belongs to, and how grave it is."""

from enum import StrEnum
from typing import Final, Self

from dra_extender.cel.explain.values import shortened
from dra_extender.model.api_json import Value

_LONGEST_DETAIL: Final = 1_000
_NAMESPACED: Final = frozenset({"claim", "pod"})
_ALLOCATIONS: Final = ("resourceclaims", "resourceslices")
_USERS: Final = ("resourceclaims", "pods")


class CheckSeverity(StrEnum):
    """ERROR: devices are in danger, or a pod does not run.  WARNING: something has no effect."""

    ERROR = "error"
    WARNING = "warning"


_ERROR: Final = CheckSeverity.ERROR
_WARNING: Final = CheckSeverity.WARNING


class Check(StrEnum):
    """What an audit looks for, by the name that metrics and answers use."""

    kinds: frozenset[str]
    severity: CheckSeverity

    def __new__(cls, name: str, severity: CheckSeverity, *kinds: str) -> Self:
        """Declare a check that cannot be judged without these plural kinds."""
        check = str.__new__(cls, name)
        check._value_ = name
        check.kinds, check.severity = frozenset(kinds), severity
        return check

    DOUBLE_ALLOCATION = "double_allocation", _ERROR, "resourceclaims"
    COUNTERS = "counters", _ERROR, *_ALLOCATIONS
    CAPACITY = "capacity", _ERROR, *_ALLOCATIONS
    NODE_BINDING = "node_binding", _ERROR, *_ALLOCATIONS
    GROUPS = "groups", _ERROR, *_ALLOCATIONS
    NEIGHBOURS = "neighbours", _ERROR, *_ALLOCATIONS
    UNREADABLE_ALLOCATION = "unreadable_allocation", _ERROR, "resourceclaims"
    UNRESERVED_POD = "unreserved_pod", _ERROR, "nodes", *_USERS
    MISSING_CLAIM = "missing_claim", _ERROR, *_USERS
    STALE_RESERVATION = "stale_reservation", _ERROR, *_USERS
    ORPHANED_CLAIM = "orphaned_claim", _ERROR, *_USERS
    STUCK_CLAIM = "stuck_claim", _ERROR, "nodes", *_USERS
    FINALIZER = "finalizer", _ERROR, "resourceclaims"
    CONDITIONS_OVERDUE = "conditions_overdue", _ERROR, "resourceclaims"
    SLICES = "slices", _ERROR, "resourceslices"
    TWO_ALLOCATORS = "two_allocators", _ERROR, "resourceclaims"
    MISSING_DEVICE = "missing_device", _ERROR, *_ALLOCATIONS
    TAINTED_DEVICE = "tainted_device", _ERROR, "resourceslices", *_USERS
    REQUEST_NOT_MET = "request_not_met", _ERROR, "resourceclaims"
    DEVICE_MISMATCH = "device_mismatch", _ERROR, "deviceclasses", *_ALLOCATIONS
    ALLOCATION_NODES = "allocation_nodes", _ERROR, *_ALLOCATIONS
    DEVICE_DRIFT = "device_drift", _WARNING, "deviceclasses", *_ALLOCATIONS
    CLASS_WITHOUT_DEVICES = "class_without_devices", _WARNING, "deviceclasses", "resourceslices"
    POLICY_WITHOUT_EFFECT = "policy_without_effect", _WARNING, "resourceslices"


class Invariant(StrEnum):
    """A rule that API objects can break, in words, with the check that it belongs to."""

    check: Check
    kind: str

    def __new__(cls, text: str, check: Check, kind: str) -> Self:
        """Declare a rule; `kind` is that of the object that a violation is about."""
        rule = str.__new__(cls, text)
        rule._value_ = text
        rule.check, rule.kind = check, kind
        return rule

    DEVICE_TWICE = "device in two claims", Check.DOUBLE_ALLOCATION, "device"
    SHARE_TWICE = "share in two claims", Check.DOUBLE_ALLOCATION, "device"
    CAPACITY_EXCEEDED = "capacity exceeded", Check.CAPACITY, "device"
    COUNTER_OVERDRAWN = "counter overdrawn", Check.COUNTERS, "counter set"
    TWO_NODES = "device bound to a node has shares on another", Check.NODE_BINDING, "device"
    GROUPS_CONFLICT = "compatibility groups in conflict", Check.GROUPS, "counter set"
    NEIGHBOURS = "neighbours not compatible", Check.NEIGHBOURS, "device"
    UNREADABLE = "allocation that cannot be read", Check.UNREADABLE_ALLOCATION, "claim"
    NO_FINALIZER = "allocation without finalizer", Check.FINALIZER, "claim"
    NO_CONSUMER = "allocation without consumer", Check.ORPHANED_CLAIM, "claim"
    FOREIGN_CONSUMER = "reservation that the controller-manager cannot read", Check.STALE_RESERVATION, "claim"
    NO_SUCH_CONSUMER = "reservation of nobody", Check.STALE_RESERVATION, "claim"
    KUBELET = "kubelet would not start the pod", Check.UNRESERVED_POD, "pod"
    ORPHANED = "claim of a running pod is gone", Check.MISSING_CLAIM, "pod"
    AWAY = "bound pod without its devices", Check.UNRESERVED_POD, "pod"
    UNUSED_EXTENDED_CLAIM = "claim for extended resources that nobody uses", Check.ORPHANED_CLAIM, "claim"


class InvariantViolation(Value, frozen=True, rename=None):
    """One broken rule: which, about what object, and what was seen."""

    rule: str
    about: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}: {self.detail}"


class AuditFinding(Value, frozen=True):
    """One thing that is wrong: the check that found it, how grave it is, the object (`claim ml/train`), and a sentence.

    `detail` has no ages, so that one and the same problem is equal in every audit.
    """

    check: Check
    severity: CheckSeverity
    about: str
    detail: str

    @property
    def namespace(self) -> str:
        """Return the namespace of the object; empty if it has none."""
        kind, _, name = self.about.partition(" ")
        return name.partition("/")[0] if kind in _NAMESPACED else ""


def finding(check: Check, about: str, detail: str) -> AuditFinding:
    """Return a finding with the severity of its check; a long detail is cut."""
    return AuditFinding(check=check, severity=check.severity, about=about, detail=shortened(detail, _LONGEST_DETAIL))


def finding_of(violation: InvariantViolation) -> AuditFinding:
    rule = next(rule for rule in Invariant if rule == violation.rule)
    return finding(rule.check, f"{rule.kind} {violation.about}", f"{rule}: {violation.detail}")
