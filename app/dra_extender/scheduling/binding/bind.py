"""The bind verb: one session per pod at a time, from the decision to the Binding."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier, wait_for_any
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, is_snapshotted
from dra_extender.model.api_json import ModelError
from dra_extender.model.metadata import time_text
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.busy_claims import BusyClaims
from dra_extender.scheduling.binding.condition_wait import ConditionWait, PreBindTimer
from dra_extender.scheduling.binding.conflicts import ConflictYield
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.reservations import ClaimReserver, Unreserve
from dra_extender.scheduling.call_budget import Awaited, within_slice
from dra_extender.scheduling.claims.extended_claims import ExtendedClaims, ExtendedResourceClaim
from dra_extender.scheduling.claims.group_entries import most_entries, reserved_through_group
from dra_extender.scheduling.claims.live_reads import PodResolver, SpecReader, UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims, gang_of, names_missing
from dra_extender.scheduling.claims.writer import ClaimWriter, OutcomeUnknownError, has_finalizer_and_snapshot
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.gang.permit import Permit, QuorumNotReachedError
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError, ConflictError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.ports.shutdown import Shutdown
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import Spans

_ALREADY_BOUND: Final = "pod {} is bound to node {} already"
_LIVE_BYTES: Final = 64 * 1024
"""A claim that was read for the decision and is no larger is not read again for its write."""


class _BindingUnknownError(RetryableError):
    """The Binding may be stored, or not: until the watch or the next bind tells, the pod may run."""


@dataclass(eq=False, slots=True)
class BindSession:
    """One bind of one pod to one node; every caller that asks for the same joins it.

    `bind` is the flow.  Between the decision and the first pending claim nothing is awaited, so no other bind decides in between.
    What is written stays written when the session ends early: the next bind of the pod carries on from the API objects.

    `_binder` has the collaborators of all sessions.  `key`: namespace and name of the pod.  `callers`: for each caller an event
    that is set when it disconnects.  `other_node`: where the scheduler wants the pod now instead.  `recheck` fires when
    `cancel_reason` may have changed.  `pod`, `claims` and `deadline` (monotonic seconds) are set by `bind`.  `_pending`: the
    allocations that this bind has made pending and has not written yet, by UID of the claim.
    """

    _binder: "Bind"
    key: tuple[str, str]
    uid: str
    node: str
    task: asyncio.Task[None] = field(init=False)
    pod: Pod = field(init=False)
    claims: tuple[FoundClaim, ...] = ()
    deadline: float = 0.0
    callers: list[asyncio.Event] = field(default_factory=list)
    other_node: str = ""
    recheck: Notifier = field(default_factory=Notifier)
    _confirmed: tuple[object, ...] | None = None
    _decided: bool = False
    _live: dict[str, bytes] = field(default_factory=dict)
    _pending: dict[str, ClaimPlacement] = field(default_factory=dict)

    async def bind(self) -> None:
        """Decide, write, wait and post the Binding."""
        binder, clock = self._binder, self._binder.cluster.clock
        self.deadline = clock.monotonic() + binder.options.binding_timeout_seconds
        pod = self.pod = await self._resolve_pod()
        if pod.node_name:
            if pod.node_name != self.node:
                raise RetryableError(_ALREADY_BOUND.format(pod.key, pod.node_name))
            return
        await binder.pods.check_group(pod)
        async with binder.extended.claim_for(pod, self.node) as extended:
            try:
                if not pod.needs_devices:
                    self._decided = True
                    await self._permit_and_bind((), PreBindTimer(clock, binder.metrics))
                    return
                with binder.spans.step("decide"):
                    await self._decide_and_begin_pending(extended)
                requires_conditions = binder.conditions.concerns(self.claims)
                with PreBindTimer(clock, binder.metrics, requires_conditions=requires_conditions) as timer:
                    try:
                        with binder.spans.step("write claims"):
                            await self._write_claims()
                        with binder.spans.step("wait for the watch"):
                            await self._confirm_delivery()
                    finally:
                        for claim in self.claims:
                            if claim.uid in self._pending:
                                binder.busy_claims.end(claim.record)
                    with binder.spans.step("wait for binding conditions"):
                        ready = await self._wait_for_conditions()
                    if extended is not None:
                        await binder.extended.publish(pod, extended)
                    with binder.spans.step("wait for the permit, and bind"):
                        await self._permit_and_bind(ready, timer)
            except BaseException:
                binder.ledger.group_entry_trials.bind_failed(self.uid)
                raise

    def cancel_reason(self) -> str | None:
        """Return why the bind should end now, None if it should go on.

        Once the claims are decided it ends for two further reasons.  Nobody waits any more: the scheduler gives the pod's CPU and
        memory to other pods then.  The node is gone: the API server would bind the pod all the same, and delete it soon after.
        """
        ledger, shutdown, name = self._binder.ledger, self._binder.shutdown, "/".join(self.key)
        if shutdown.reason is not None:
            return f"{shutdown.reason}; the next bind of pod {name} carries on"
        pod = ledger.pods.by_uid(self.uid)
        if ledger.pods.was_deleted(self.uid) or (pod is not None and pod.deleting):
            return f"pod {name} does not exist any more"
        if pod is not None and pod.finished:
            return f"pod {name} is over already"
        if pod is not None and pod.node_name not in ("", self.node):
            return _ALREADY_BOUND.format(name, pod.node_name)
        if self.other_node:
            return f"pod {name} is to be bound to node {self.other_node} now, no more to {self.node}"
        if self._decided and self.node not in ledger.nodes:
            return f"node {self.node} does not exist any more"
        if self._decided and all(caller.is_set() for caller in self.callers):
            return f"nobody waits for the bind of pod {name} any more; its devices stay reserved for it"
        return None

    def check(self) -> None:
        """Raise RetryableError if there is a `cancel_reason`."""
        reason = self.cancel_reason()
        if reason is not None:
            raise RetryableError(reason)

    def _facts(self) -> tuple[object, ...]:
        """Return the state of everything that keeps the pod from being bound with its claims, as long as none is in conflict."""
        binder, ledger = self._binder, self._binder.ledger
        facts: list[object] = [ledger.inventory_versions.place]
        for claim in self.claims:
            record = claim.record
            facts += (record.claim, ledger.claims.by_uid(claim.uid) is record, binder.unreserve.is_releasing(claim))
            facts += [ledger.claims.usage.version(holding.pool_id) for holding in record.holdings]
        return tuple(facts)

    async def _resolve_pod(self) -> Pod:
        binder, (namespace, name) = self._binder, self.key
        pod = binder.pods.delivered(namespace, name, self.uid)
        if pod is None or names_missing(pod):
            # kube-scheduler may have seen a later state of the pod than our watch has brought.
            return await binder.pods.read(namespace, name, self.uid)
        if pod.deleting or binder.ledger.pods.was_deleted(self.uid):
            raise RetryableError(f"pod {namespace}/{name} with UID {self.uid} does not exist any more")
        return pod

    async def _decide_and_begin_pending(self, extended: ExtendedResourceClaim | None) -> None:
        """Decide for every open claim of the pod, and make these allocations pending; nothing is awaited in between."""
        binder, pod = self._binder, self.pod
        time_slices = binder.spec_reader.time_slices
        claims = self.claims = await self._wait_for_shared_claims(extended)
        budget = time_slices.begin(pod, binder.options.filter_budget_seconds)
        while True:
            try:
                decided = within_slice(partial(binder.decision.decide, pod, self.node, claims, budget))
            except Exception:
                time_slices.end(pod, budget)
                raise
            if not isinstance(decided, (Awaited, UnreadSpecs)):
                break
            live = await binder.spec_reader.wait_for(pod, decided, budget)
            self._live.update((uid, raw) for uid, raw in live.items() if len(raw) <= _LIVE_BYTES)
            claims = self.claims = await self._wait_for_shared_claims(extended)
            # The wait for the bind of another pod is no time of the search.
            budget.lap()
        time_slices.end(pod, budget)
        stamp = time_text(binder.cluster.clock.now())
        for claim, placement in decided:
            timed = msgspec.structs.replace(placement.allocation, allocation_timestamp=stamp)
            self._pending[claim.uid] = ClaimPlacement(allocation=timed, holdings=placement.holdings)
            binder.ledger.begin_pending(claim.uid, self._pending[claim.uid])
        self._decided = True
        node = binder.ledger.nodes.get(self.node)
        if node is not None and (by_group := reserved_through_group(claims, node, binder.ledger)):
            binder.ledger.group_entry_trials.begin(pod, node, by_group)

    async def _wait_for_shared_claims(self, extended: ExtendedResourceClaim | None) -> tuple[FoundClaim, ...]:
        """Return the claims of the pod, as soon as no other bind writes one of them."""
        binder, pod, clock = self._binder, self.pod, self._binder.cluster.clock
        deadline = clock.monotonic() + binder.options.shared_claim_wait_seconds
        while True:
            self.check()
            claims = find_claims(pod, binder.ledger, binder.ledger.nodes.get(self.node))
            if isinstance(claims, Rejection):
                raise RetryableError(claims.text)
            if extended is not None:
                extended_claim = binder.extended.current(extended)
                # What was held for the claim before it existed is held under its UID now.
                binder.holds.transfer(extended.claim_need.claim.uid, extended_claim.uid)
                claims = (*claims, extended_claim)
            if not any(binder.busy_claims.is_busy(claim.record) for claim in claims):
                return claims
            seconds_left = deadline - clock.monotonic()
            if seconds_left <= 0 or not await wait_for_any((binder.busy_claims.changed, self.recheck), seconds_left):
                raise RetryableError(f"pod {pod.key}: another pod's bind is still writing a shared claim")

    async def _write_claims(self) -> None:
        """Write the pending allocations, and add the reservation to claims that are allocated.

        The claims are written at the same time; if one fails, the others are finished first, and the next bind finds them.
        """
        if len(self.claims) == 1:
            await self._write_claim(self.claims[0])
            return
        outcomes = await asyncio.gather(*map(self._write_claim, self.claims), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write_claim(self, claim: FoundClaim) -> None:
        binder, record = self._binder, claim.record
        placement = self._pending.get(claim.uid)
        if placement is not None:
            try:
                await binder.conflicts.wait_for_guards(placement, self)
                live = self._live.pop(claim.uid, b"") if self._live else b""
                await binder.writer.allocate(record, placement, claim.consumer, live)
            except OutcomeUnknownError:
                del self._pending[claim.uid]
                binder.busy_claims.resolve(record)
                raise
            del self._pending[claim.uid]
            binder.busy_claims.end(record)
            return
        await binder.writer.release_if_shares_lost(record, claim.consumer.uid)
        if not claim.reserved:
            entry_limit = most_entries(claim, self.pod, binder.ledger.nodes.get(self.node), binder.ledger)
            await binder.reserver.reserve(record, claim.consumer, entry_limit)

    async def _confirm_delivery(self) -> None:
        """Wait until the claim watch has delivered these allocations, and with them every earlier write of a claim.

        The bind of another pod, or an earlier bind of this pod that did not wait so long, may have written an allocation.
        """
        binder = self._binder
        for claim in self.claims:
            record = claim.record
            version = str(record.allocated_version or record.claim.metadata.resource_version)
            try:
                alive = await binder.ledger.claims.delivered(claim.uid, version, binder.options.watch_lag_seconds)
            except TimeoutError as late:
                raise RetryableError(f"claim {claim.name}: the claim watch is behind") from late
            if not alive:
                raise RetryableError(f"claim {claim.name} was deleted while pod {self.pod.key} was being bound")

    async def _wait_for_conditions(self) -> Sequence[ClaimHead]:
        """Release conflicting claims, wait for the binding conditions; return the claims as they were when every device was ready.

        Restores the finalizer of our allocations, and the snapshot they had before the wait, where another client removed them.
        """
        before = [claim.record.claim for claim in self.claims]
        await self._binder.conflicts.release_conflicting(self)
        await self._binder.conditions.wait_until_ready(self)
        ready = [claim.record.claim for claim in self.claims]
        for claim, then in zip(self.claims, before, strict=True):
            snapshot = then.metadata.annotations.get(SNAPSHOT_ANNOTATION)
            if (
                snapshot is not None
                and not has_finalizer_and_snapshot(claim.record.claim, snapshot)
                and is_snapshotted(then)
            ):
                await self._binder.writer.restore(claim.record, snapshot)
        return ready

    async def _permit_and_bind(self, ready: Sequence[ClaimHead], timer: PreBindTimer) -> None:
        """Wait for the pod's gang, and post the Binding if everything is still as it was.

        The conditions of a claim are not checked again if it is still as in `ready`, and nothing is if no fact has changed since
        the last look: hundreds of members of a gang look in one turn of the event loop.
        """
        binder, pod = self._binder, self.pod

        async def check() -> None:
            timer.resume()
            self.check()
            if self._facts() != self._confirmed:
                is_free = await binder.conflicts.release_conflicting(self)
                await binder.conditions.confirm(self, ready)
                self._confirmed = self._facts() if is_free else None
            timer.pause()

        timer.pause()
        try:
            seconds_left = self.deadline - binder.cluster.clock.monotonic()
            async with binder.permit.wait(pod, seconds_left, check, self.recheck):
                # The pod counts as bound from here on, as long as its Binding is not refused.
                binder.ledger.pods.begin_binding(pod)
                try:
                    await binder.post_binding(pod, self.node)
                except _BindingUnknownError:
                    raise
                except BaseException:
                    binder.ledger.pods.binding_failed(pod.uid)
                    raise
        except QuorumNotReachedError:
            await binder.unreserve.release_each(self.claims, pod)
            raise


@dataclass(eq=False, slots=True)
class Bind:
    """Writes the allocations of a pod's claims and binds the pod; one `BindSession` per pod at a time.

    Idempotent by pod UID and resumable only from API objects, so that it may be repeated after any failure, a restart included.
    """

    ledger: Ledger
    cluster: Cluster
    metrics: Metrics
    options: Options
    shutdown: Shutdown
    pods: PodResolver
    decision: BindDecision
    spec_reader: SpecReader
    extended: ExtendedClaims
    busy_claims: BusyClaims
    writer: ClaimWriter
    reserver: ClaimReserver
    unreserve: Unreserve
    conditions: ConditionWait
    conflicts: ConflictYield
    permit: Permit
    holds: HoldService
    unschedulable: UnschedulablePods
    backoff: DeviceBackoff
    spans: Spans
    supervisor: Supervisor
    sessions: dict[str, BindSession] = field(default_factory=dict, init=False)

    @property
    def pods_being_bound(self) -> Collection[str]:
        """UIDs of the pods that are being bound; a live view."""
        return self.sessions.keys()

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event) -> None:
        """Bind the pod to the node; joins a bind of the same pod and node that is still running, ends one to another node.

        Once `disconnected` is set for every caller, no Binding is posted any more.
        """
        await self.pods.wait_for_node(node)
        pod = self.pods.delivered(namespace, name, uid)
        if pod is not None and not pod.needs_devices and not pod.node_name and gang_of(pod, self.ledger) is None:
            await self.pods.check_group(pod)
            await self.post_binding(pod, node)
            return
        while (session := self.sessions.get(uid)) is not None and session.node != node:
            session.other_node = node
            session.recheck.fire()
            await asyncio.wait((session.task,))
        if session is not None and session.key != (namespace, name):
            raise RetryableError(f"the pod with UID {uid} is {'/'.join(session.key)}, not {namespace}/{name}")
        if session is None:
            session = self.sessions[uid] = BindSession(self, (namespace, name), uid, node)
            session.task = self.supervisor.begin(BackgroundTask.BIND, session.bind(), (RetryableError,))
            session.task.add_done_callback(lambda _: self.sessions.pop(uid, None))
        session.callers.append(disconnected)
        watcher = asyncio.ensure_future(disconnected.wait())
        watcher.add_done_callback(lambda _: session.recheck.fire())
        try:
            await asyncio.shield(session.task)
        finally:
            watcher.cancel()

    def recheck(self, uids: Collection[str] | None = None) -> None:
        """Have the binds of these pods (None: of every pod) look again for a reason to end, if they only wait."""
        for uid in tuple(self.sessions) if uids is None else uids:
            if (session := self.sessions.get(uid)) is not None:
                session.recheck.fire()

    def recheck_node(self, node: str) -> None:
        self.recheck([uid for uid, session in self.sessions.items() if session.node == node])

    async def drain(self) -> None:
        while tasks := [session.task for session in self.sessions.values()]:
            await asyncio.wait(tasks)
        await self.busy_claims.drain()

    async def post_binding(self, pod: Pod, node: str) -> None:
        """Post the Binding of the pod; then forget what is kept for pods that wait: rejection, backoff and holds.

        A conflict, or no answer, is success if the pod is on our node already.

        Raises:
            RetryableError: the pod is not bound, or it is not known whether it is.
        """
        try:
            await self.cluster.pods.bind(pod.namespace, pod.name, pod.uid, node)
        except (ConflictError, ServerUnavailableError) as unclear:
            try:
                live = await self.cluster.pods.read(pod.namespace, pod.name)
            except (ClusterError, ModelError) as problem:
                raise _BindingUnknownError(f"pod {pod.key}: {unclear}; reading it back: {problem}") from problem
            if live.uid != pod.uid or live.node_name != node:
                raise RetryableError(f"pod {pod.key}: {unclear}") from unclear
        except ClusterError as problem:
            raise RetryableError(f"pod {pod.key}: {problem}") from problem
        self.unschedulable.forget(pod.uid)
        self.backoff.forget(pod.uid)
        self.holds.release_pods(pod.uid)
