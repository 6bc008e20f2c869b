"""Faults that are planted in the service: each takes away one protection, to see whether the simulation finds that.

`python -m tests.simulation --planted` looks for each of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import aiohttp
from dra_extender.allocator.rules.capacity import Sharing
from dra_extender.allocator.rules.compatibility_groups import GroupTable
from dra_extender.allocator.rules.counter_sets import CounterTable
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.kube.claims import KubeClaims
from dra_extender.kube.client import transport
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.endpoint_publisher import EndpointPublisher
from dra_extender.kube.leader_election import LeaseView
from dra_extender.kube.reflector import EventDispatcher
from dra_extender.kube.scheduler_waker import KubeSchedulerWaker
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.hold_book import HoldBook
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.claim_edits import with_allocation, without_reservations
from dra_extender.runtime import clock
from dra_extender.scheduling.binding import condition_wait
from dra_extender.scheduling.binding.bind import BindSession
from dra_extender.scheduling.binding.busy_claims import BusyClaims
from dra_extender.scheduling.binding.condition_wait import ConditionWait
from dra_extender.scheduling.binding.conflicts import ConflictYield
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.reservations import ClaimReserver
from dra_extender.scheduling.claims import pod_claims, writer
from dra_extender.scheduling.gang.permit import Permit
from dra_extender.scheduling.holds.stale_holds import StaleHolds
from dra_extender.scheduling.reclaim.controller import ReclaimController
from dra_extender.service.leadership import Leadership
from msgspec import json

Plant = Callable[[], AbstractContextManager[Any]]


def _instead(owner: Any, name: str, instead: Any) -> Plant:
    return lambda: patch.object(owner, name, instead)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


async def _nothing_awaited(*_: Any, **__: Any) -> None:
    """Do nothing."""


def _value(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


async def _binding_first(self: Any) -> None:
    await self._binder.post_binding(self.pod, self.node)
    await _WRITE_CLAIMS(self)


async def _forever_ready(self: Any) -> list[Any]:
    return [each.record.claim for each in self.claims]


def _renewed_when_answered(self: Any, record: Any, sent: float, now: float) -> None:
    _RENEWED(self, record, now, now)


def _leads_for_ever(self: Any, now: float) -> bool:
    return bool(self.holder == self.identity)


async def _stored_without_version(self: Any, namespace: str, name: str, body: bytes) -> bytes:
    """Overwrite whatever is stored by now."""
    stored, wanted = json.decode(await self.read(namespace, name)), json.decode(body)
    wanted["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return await _UPDATE_STATUS(self, namespace, name, json.encode(wanted))


def _without_reservation(raw: bytes, allocation: Any, consumer: Any) -> bytes:
    return without_reservations(with_allocation(raw, allocation, consumer), (consumer.uid,))


def _uncounted_while_pending(self: Any, record: Any, before: Any) -> Any:
    pending, record.pending = record.pending, None
    try:
        return _RECOUNT(self, record, before)
    finally:
        record.pending = pending


def _known_only(self: Any, data: bytes) -> Any:
    found = json.decode(data)["metadata"]
    known = self.claims.by_uid(found["uid"])
    return _ASSUME(self, data) if known is None else known


def _held_whatever_has_changed(self: Any, undecided: Any, node: str) -> Any:
    holds = [self._ledger.holds.get(each.record.claim.metadata.uid) for each in undecided]
    if any(hold is None or node not in hold.placements for hold in holds):
        return None
    return [(claim, hold.placements[node]) for claim, hold in zip(undecided, holds, strict=True)]


async def _release_for_all(self: Any, record: Any, _: Any, **more: Any) -> Any:
    consumers = [each.uid for each in record.claim.status.reserved_for]
    return await _RELEASE(self, record, consumers, **more)


@asynccontextmanager
async def _permitted(
    _self: Any, _pod: Any, _seconds: float, check: Callable[[], Awaitable[None]], *_: Any
) -> AsyncIterator[None]:
    await check()
    yield


async def _sleep_for_ever(_: Any) -> None:
    await asyncio.Event().wait()


def _gone_is_forgotten(self: Any) -> bool:
    return False


def _all(*plants: Plant) -> Plant:
    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            yield

    return planted


_RELEASE: Final = writer.ClaimWriter.release
_RECOUNT: Final = ClaimIndex._recount
_ASSUME: Final = Ledger.assume_written
_WRITE_CLAIMS: Final = BindSession._write_claims
_RENEWED: Final = LeaseView.renewed
_UPDATE_STATUS: Final = KubeClaims.update_status

_UNCOMPARED: Final = _instead(BindDecision, "_conflict", _nothing)
"""A bind compares its decision with what is allocated once more, which covers for every rule of the search."""
_UNSEEN_ON_NODE: Final = _instead(condition_wait, "why_unusable_on", _nothing)
"""A bind asks before the Binding whether each claim is still allocated for the node."""

PLANTED: Final[dict[str, Plant]] = {
    "bind does not wait for the watch": _instead(BindSession, "_confirm_delivery", _nothing_awaited),
    "a list counts before it is complete": _instead(ClaimIndex, "begin_list", _nothing),
    "bind does not wait for binding conditions": _instead(BindSession, "_wait_for_conditions", _forever_ready),
    "bind looks at nothing before the Binding": _instead(ConditionWait, "confirm", _nothing_awaited),
    "the Binding comes before the claims": _instead(BindSession, "_write_claims", _binding_first),
    "bind goes on for a pod that is gone": _instead(BindSession, "cancel_reason", _nothing),
    "bind takes no account of where a claim is allocated": _instead(pod_claims, "why_unusable_on", _nothing),
    "a hold is taken whatever has been allocated since": _all(
        _instead(BindDecision, "_held_placements", _held_whatever_has_changed), _UNCOMPARED
    ),
    "conflicts with another scheduler are not looked for": _instead(ConflictYield, "_overlap", _nothing),
    "a member does not wait for its gang": _instead(Permit, "wait", _permitted),
    "allocations that are being written do not count": _instead(ClaimIndex, "_recount", _uncounted_while_pending),
    "an unknown outcome counts as not stored": _instead(BusyClaims, "resolve", BusyClaims.end),
    "a locked claim is decided about": _instead(BusyClaims, "is_busy", _value(False)),
    "what was written counts when the watch brings it": _instead(Ledger, "assume_written", _known_only),
    "the finalizer is not written": _instead(writer, "has_finalizer_and_snapshot", _value(True)),
    "the allocation is written without its reservation": _instead(writer, "with_allocation", _without_reservation),
    "a further pod is not reserved for": _instead(ClaimReserver, "reserve", _nothing_awaited),
    "a status is written over a later one": _instead(KubeClaims, "update_status", _stored_without_version),
    "an allocation of another scheduler counts as ours": _all(
        _instead(writer, "_is_written", _value(True)), _instead(writer, "same_devices", _value(True)), _UNSEEN_ON_NODE
    ),
    "a release takes the reservations of others": _instead(writer.ClaimWriter, "release", _release_for_all),
    "no fence at the connection": _instead(transport, "_fenced_requests", _value(aiohttp.ClientRequest)),
    "the leader leads until it learns of another": _instead(LeaseView, "leads", _leads_for_ever),
    "the clock of the lease stands still while the machine sleeps": _instead(clock, "_STEADY", time.CLOCK_MONOTONIC),
    "a renewal counts from its answer": _instead(LeaseView, "renewed", _renewed_when_answered),
    "a lease is taken before it has run out": _instead(LeaseView, "may_take", _value(True)),
    "a new leader does not catch up": _instead(Leadership, "catch_up", _nothing_awaited),
    "the leader is not published": _instead(EndpointPublisher, "keep_publishing", _nothing_awaited),
    "deletions are not delivered": _instead(EventDispatcher, "removed", _nothing),
    "a list does not end what is gone": _instead(EventDispatcher, "missing_from", _value(())),
    "a version that is gone is watched on": _instead(ApiCallError, "gone", property(_gone_is_forgotten)),
    "pods are not woken": _instead(KubeSchedulerWaker, "wake", _nothing_awaited),
    "nothing is released": _instead(ReclaimController, "keep_reclaiming", _sleep_for_ever),
    "holds end neither with time nor when they are stale": _all(
        _instead(HoldBook, "expire", _value(0)), _instead(StaleHolds, "_is_stale", _value(False))
    ),
    "holds end neither with their pod nor with time": _all(
        _instead(HoldBook, "release_pod", _nothing), _instead(HoldBook, "expire", _value(0))
    ),
    "counters are not drawn": _all(_instead(CounterTable, "draw", _value(True)), _UNCOMPARED),
    "compatibility groups are not joined": _all(_instead(GroupTable, "join", _value(True)), _UNCOMPARED),
    "capacity of shares is not counted": _all(_instead(Sharing, "exhausted", _nothing), _UNCOMPARED),
    "a taken device is free": _all(_instead(NodeView, "is_taken", _value(False)), _UNCOMPARED),
}
