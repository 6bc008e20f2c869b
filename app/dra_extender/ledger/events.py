"""What the ledger publishes to those who act on changes: one type per event, and the subscriptions of their handlers."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from dra_extender.ledger.claim_record import ClaimRecord, Orphan
from dra_extender.ledger.guard_index import Guard
from dra_extender.ledger.hold_book import Hold
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import DeviceId


class AllocationObserved(NamedTuple):
    """The watch delivered an allocation that this process did not write, or wrote before it started."""

    record: ClaimRecord


class AllocationEnded(NamedTuple):
    """Stored allocations ended that had these devices to themselves."""

    devices: Collection[DeviceId]


class GuardObserved(NamedTuple):
    """The state of a guard claim became known, from the watch or from an answer."""

    guard: Guard


class GuardReservationObserved(NamedTuple):
    """The watch delivered a claim that is reserved for the guard claim of a device of its own."""

    record: ClaimRecord


class ClaimOrphaned(NamedTuple):
    """A claim was deleted while pods use its devices."""

    orphan: Orphan


class ClaimSpecsDropped(NamedTuple):
    """The claims of a namespace exceed its limit: the ledger keeps no specs of further ones."""

    namespace: str


class HoldEnded(NamedTuple):
    """A hold ended; `holdings`: what it kept; `allocated`: it ended because its claim is allocated."""

    hold: Hold
    holdings: Sequence[DeviceHolding]
    allocated: bool


class PodResolved(NamedTuple):
    """A pod was bound (by any scheduler), is being deleted, or was deleted."""

    pod_uid: str


class NodeRemoved(NamedTuple):
    """A node was deleted."""

    node: str


class PodGroupChanged(NamedTuple):
    """A PodGroup, one of its pods, or a claim that was generated for one of them changed; `key`: (namespace, name)."""

    key: tuple[str, str]


LedgerEvent = (
    AllocationObserved
    | AllocationEnded
    | GuardObserved
    | GuardReservationObserved
    | ClaimOrphaned
    | ClaimSpecsDropped
    | HoldEnded
    | PodResolved
    | NodeRemoved
    | PodGroupChanged
)

E = TypeVar("E", bound=LedgerEvent)
_Handlers = list[Callable[[Any], None]]


class Subscription:
    """A handler's registration; the subscriber closes it."""

    __slots__ = ("_handler", "_handlers")

    def __init__(self, handlers: _Handlers, handler: Callable[[Any], None]) -> None:
        self._handlers = handlers
        self._handler = handler
        handlers.append(handler)

    def close(self) -> None:
        """End the registration; closing it again has no effect."""
        handlers, self._handlers = self._handlers, []
        if self._handler in handlers:
            handlers.remove(self._handler)


class LedgerEvents:
    """The handlers of each kind of event, called in the order of their subscriptions."""

    def __init__(self) -> None:
        self._handlers: dict[type, _Handlers] = {}

    def subscribe(self, kind: type[E], handler: Callable[[E], None]) -> Subscription:
        """Call the handler with each event of this kind, synchronously, until the subscription is closed."""
        return Subscription(self._handlers.setdefault(kind, []), handler)

    def publish(self, event: LedgerEvent) -> None:
        """Call every handler of the event's kind.

        Raises:
            Exception: what the first handler raised that failed; the others were called all the same.
        """
        failure: Exception | None = None
        for handler in tuple(self._handlers.get(type(event), ())):
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 - one handler must not cost the others the event
                failure = failure or error
        if failure is not None:
            raise failure
