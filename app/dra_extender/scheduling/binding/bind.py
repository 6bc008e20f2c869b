"""The bind verb: starts and joins binds, one session per pod at a time."""

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager

from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.competitors import Competitors
from dra_extender.scheduling.binding.condition_wait import ConditionWait
from dra_extender.scheduling.binding.conflict_release import ConflictRelease
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.guard_claims import GuardClaims
from dra_extender.scheduling.binding.guard_reservations import GuardReservations
from dra_extender.scheduling.binding.pending_claims import PendingClaims
from dra_extender.scheduling.binding.session import BindDependencies, BindSession, post_binding
from dra_extender.scheduling.claims.releaser import ClaimReleaser
from dra_extender.scheduling.claims.reserver import ClaimReserver
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.extended_resources.claims import ExtendedClaims
from dra_extender.scheduling.holds import HoldService
from dra_extender.scheduling.permit.members import gang_of
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.pod_resolver import PodResolver
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import YieldPolicy
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods


class Bind:
    """Writes the allocations of a pod's claims and binds the pod; one `BindSession` per pod at a time.

    Idempotent by pod UID and resumable from API objects alone, so that it may be repeated after any failure, a restart included.
    At its `permit` the members of a gang wait for each other.  `guards` keeps the guard claims, `guard_reservations` the
    allocations that wait for them.
    """

    def __init__(
        self,
        context: SchedulingContext,
        decision: BindDecision,
        holds: HoldService,
        unschedulable: UnschedulablePods,
        backoff: DeviceBackoff,
        competitors: Competitors,
    ) -> None:
        ledger, cluster, options = context.ledger, context.cluster, context.options
        self._supervisor = Supervisor(context.metrics.background_failed)
        self._sessions: dict[str, BindSession] = {}
        self.guards = GuardClaims(
            ledger, cluster.claims, options.own_namespace, makes_guards=options.yield_policy is YieldPolicy.GUARD
        )
        writer = ClaimWriter(ledger, cluster.claims, context.metrics)
        self.guard_reservations = GuardReservations(context, writer, self.guards, competitors)
        releaser = ClaimReleaser(ledger, writer)
        conflicts = ConflictRelease(context, decision, releaser, backoff, self.guards, self.guard_reservations)
        self._deps = BindDependencies(
            ledger=ledger,
            cluster=cluster,
            metrics=context.metrics,
            options=options,
            shutdown=context.shutdown,
            pods=PodResolver(ledger, cluster.pods, context.clock, options),
            decision=decision,
            extended=ExtendedClaims(ledger, writer, cluster, holds, options.field_manager),
            pending=PendingClaims(ledger, writer, self._supervisor),
            writer=writer,
            reserver=ClaimReserver(writer, self._supervisor),
            releaser=releaser,
            conditions=ConditionWait(context, releaser, backoff, conflicts),
            conflicts=conflicts,
            permit=Permit(ledger, context.clock, options.reclaim_grace_seconds),
            holds=holds,
            unschedulable=unschedulable,
            backoff=backoff,
            spans=context.spans,
        )

    @property
    def pods(self) -> PodResolver:
        """Finds the pod that a call is about."""
        return self._deps.pods

    @property
    def permit(self) -> Permit:
        """Where the binds of a gang wait for each other."""
        return self._deps.permit

    @property
    def running(self) -> Collection[str]:
        """UIDs of the pods that are being bound; what is reserved for them is in use."""
        return self._sessions.keys()

    def lock_claim(self, claim_uid: str) -> AbstractContextManager[None]:
        """Inside, no bind decides about this claim; one that needs it waits for the end of the block."""
        return self._deps.pending.lock_claim(claim_uid)

    async def run(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event) -> None:
        """Bind the pod to the node; joins a bind of the same pod and node that is still running, ends one to another node.

        Once `disconnected` is set for every caller, no Binding is posted any more.

        Raises:
            RetryableError: not bound; the text says why, and a later bind of the pod carries on.
        """
        await self.pods.wait_for_node(node)
        pod = self.pods.known(namespace, name, uid)
        if pod is not None and not pod.needs_devices and not pod.node_name and gang_of(pod, self._deps.ledger) is None:
            await post_binding(self._deps, pod, node)
            return
        while (session := self._sessions.get(uid)) is not None and session.node != node and session.task is not None:
            session.other_node = node
            session.recheck.fire()
            await asyncio.wait((session.task,))
        if session is not None and session.key != (namespace, name):
            raise RetryableError(f"the pod with UID {uid} is {'/'.join(session.key)}, not {namespace}/{name}")
        if session is None:
            session = self._begin(namespace, name, uid, node)
        session.callers.append(disconnected)
        watcher = asyncio.ensure_future(disconnected.wait())
        watcher.add_done_callback(lambda _: session.recheck.fire())
        try:
            if session.task is not None:
                await asyncio.shield(session.task)
        finally:
            watcher.cancel()

    def recheck(self, uids: Collection[str] | None = None) -> None:
        """Have the binds of these pods (None: of every pod) look again for a reason to end, if they only wait."""
        for uid in tuple(self._sessions) if uids is None else uids:
            if (session := self._sessions.get(uid)) is not None:
                session.recheck.fire()

    def recheck_node(self, node: str) -> None:
        """As `recheck`, for the binds to this node."""
        self.recheck([uid for uid, session in self._sessions.items() if session.node == node])

    async def drain(self) -> None:
        """Wait until the binds in progress have come to an end."""
        while tasks := [each.task for each in self._sessions.values() if each.task is not None]:
            await asyncio.wait(tasks)
        await self._deps.pending.drain()

    def _begin(self, namespace: str, name: str, uid: str, node: str) -> BindSession:
        session = self._sessions[uid] = BindSession(self._deps, (namespace, name), uid, node)
        session.task = self._supervisor.begin(BackgroundTask.BIND, session.run(), (RetryableError,))
        session.task.add_done_callback(lambda done: self._ended(uid, done))
        return session

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        """Forget the bind; its outcome counts as read even if every caller has gone."""
        self._sessions.pop(uid, None)
        if not task.cancelled():
            task.exception()
