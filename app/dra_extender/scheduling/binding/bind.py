import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import msgspec

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod
from dra_extender.model.rejection import Rejection
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION, is_snapshotted
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.condition_wait import BindingWait
from dra_extender.scheduling.binding.conflict_release import OverlapRelease
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.prebind import PreBind
from dra_extender.scheduling.binding.running_bind import ALREADY, RunningBind
from dra_extender.scheduling.claims.group_entries import most_entries, relying
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims, names_missing
from dra_extender.scheduling.claims.releaser import ClaimReleaser
from dra_extender.scheduling.claims.reserver import Reservations
from dra_extender.scheduling.claims.writer import ClaimWriting, OutcomeUnknownError, is_kept
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.extended_resources.claims import ExtendedClaims, ExtendedResourceClaim
from dra_extender.scheduling.permit.members import gang_of
from dra_extender.scheduling.permit.permit import Permit, QuorumNotReachedError
from dra_extender.scheduling.pod_resolver import PodResolver
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError, ConflictError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.ports.shutdown import Shutdown
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.telemetry.metrics import Metrics


class Bind:
    """Makes a pod's devices its own and binds it: decide and take in one step, write, let our own watch confirm, post the Binding.

    Idempotent by pod UID and resumable from API objects alone, so that it may be repeated after any failure, a restart included.
    At its `gate` the members of a gang wait for each other.
    """

    def __init__(
        self,
        ledger: Ledger,
        decision: BindDecision,
        refusals: UnschedulablePods,
        cool_downs: DeviceBackoff,
        cluster: Cluster,
        metrics: Metrics,
        options: Options,
        stopping: Shutdown,
    ) -> None:
        self._ledger = ledger
        self._decision = decision
        self._refusals = refusals
        self._cool_downs = cool_downs
        self.gate = Permit(ledger, cluster.clock, options.reclaim_grace_seconds)
        self._cluster = cluster
        self._metrics = metrics
        self._options = options
        self._stopping = stopping
        self.pods = PodResolver(ledger, cluster.pods, options)
        self._writing = ClaimWriting(ledger, cluster.claims, metrics)
        self._supervisor = Supervisor(metrics.background_failed)
        self._reserve = Reservations(self._writing, self._supervisor)
        self._giving_back = ClaimReleaser(ledger, self._writing)
        self.release_overlaps = OverlapRelease(
            ledger, decision, self._giving_back, cool_downs, metrics, cluster.clock, options.yield_policy
        )
        self._extended = ExtendedClaims(ledger, self._writing, cluster, options.field_manager)
        self._ready = BindingWait(ledger, self._giving_back, cool_downs, cluster, metrics, options)
        self._running: dict[str, RunningBind] = {}
        self._written = Notifier()
        self._set_aside: set[str] = set()
        self._in_doubt: dict[str, asyncio.Task[None]] = {}

    @property
    def running(self) -> Collection[str]:
        """UIDs of the pods that are being bound; what is reserved for them is in use."""
        return self._running.keys()

    @contextmanager
    def set_aside(self, claim_uid: str) -> Iterator[None]:
        """Inside, no bind decides about this claim; one that needs it waits for the end of the block."""
        self._set_aside.add(claim_uid)
        try:
            yield
        finally:
            self._set_aside.discard(claim_uid)
            self._written.fire()

    async def run(self, namespace: str, name: str, uid: str, node: str, hung_up: asyncio.Event) -> None:
        """Bind the pod to the node; joins a bind of the same pod and node that is still running, ends one to another node.

        Once `hung_up` is set for every caller, no Binding is posted any more.

        Raises:
            RetryableError: not bound; the text says why, and a later bind of the pod carries on.
        """
        await self.pods.node(node)
        pod = self.pods.known(namespace, name, uid)
        if pod is not None and not pod.needs_devices and not pod.node_name and gang_of(pod, self._ledger) is None:
            await self._post(pod, node)
            return
        while (running := self._running.get(uid)) is not None and running.node != node and running.task is not None:
            running.other_node = node
            running.nudge.fire()
            await asyncio.wait((running.task,))
        if running is not None and running.pod != f"{namespace}/{name}":
            raise RetryableError(f"the pod with UID {uid} is {running.pod}, not {namespace}/{name}")
        if running is None:
            running = self._running[uid] = RunningBind(f"{namespace}/{name}", node)
            transaction = self._transaction(running, namespace, name, uid)
            running.task = self._supervisor.begin(BackgroundTask.BIND, transaction, (RetryableError,))
            running.task.add_done_callback(lambda done: self._ended(uid, done))
        running.callers.append(hung_up)
        watcher = asyncio.ensure_future(hung_up.wait())
        watcher.add_done_callback(lambda _: running.nudge.fire())
        try:
            if running.task is not None:
                await asyncio.shield(running.task)
        finally:
            watcher.cancel()

    def nudge(self, uids: Collection[str] | None = None) -> None:
        """Something happened that may end the binds of these pods (None: of every pod), as far as they only wait."""
        for uid in tuple(self._running) if uids is None else uids:
            if (running := self._running.get(uid)) is not None:
                running.nudge.fire()

    def nudge_node(self, node: str) -> None:
        """The node is gone: binds to it that wait have nothing to wait for."""
        self.nudge([uid for uid, running in self._running.items() if running.node == node])

    async def drain(self) -> None:
        """Wait until the binds in progress have come to an end."""
        while tasks := [each.task for each in self._running.values() if each.task is not None]:
            await asyncio.wait(tasks)
        for task in tuple(self._in_doubt.values()):
            task.cancel()
        await asyncio.gather(*self._in_doubt.values(), return_exceptions=True)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        """Forget the bind; its outcome counts as read even if every caller has gone."""
        self._running.pop(uid, None)
        if not task.cancelled():
            task.exception()

    async def _transaction(self, running: RunningBind, namespace: str, name: str, uid: str) -> None:
        node, begun = running.node, self._cluster.clock.monotonic()
        pod = await self._pod(namespace, name, uid)
        if pod.node_name:
            if pod.node_name != node:
                raise RetryableError(ALREADY.format(pod.key, pod.node_name))
            return
        async with self._extended.claimed(pod, node) as extended:
            try:
                await self._bound(running, pod, extended, begun)
            except BaseException:
                self._ledger.group_starts.not_bound(uid)
                raise

    async def _bound(
        self, running: RunningBind, pod: Pod, extended: ExtendedResourceClaim | None, begun: float
    ) -> None:
        """Everything from the decision to the Binding; `extended` is the pod's claim for extended resources, if it needs one."""
        node, uid, clock = running.node, pod.uid, self._cluster.clock
        if not pod.needs_devices:
            none = PreBind(clock, self._metrics, requires_conditions=False)
            await self._passed(running, pod, (), (), begun, none)
            return
        found = await self._decided(running, pod, extended)
        with PreBind(clock, self._metrics, requires_conditions=self._ready.concerns(found)) as prebind:
            try:
                await self._make_ours(found, pod, node)
                await self._delivered(found, pod)
            finally:
                self._give_up_unwritten(found)

            check, end = (
                partial(running.check_waited_for, uid, self._ledger, self._stopping),
                begun + self._options.binding_timeout_seconds,
            )

            async def go_on() -> None:
                check()
                await self.release_overlaps(found, pod, node, check, running.nudge, end)

            before = [each.record.claim for each in found]
            await self._ready(found, pod, node, go_on, running.nudge)
            ready = [each.record.claim for each in found]
            await self._restore(found, before)
            if extended is not None:
                await self._extended.tell(pod, extended)
            await self._passed(running, pod, found, ready, begun, prebind)

    async def _passed(
        self,
        running: RunningBind,
        pod: Pod,
        found: Sequence[FoundClaim],
        ready: Sequence[ClaimHead],
        begun: float,
        prebind: PreBind,
    ) -> None:
        """Through the gate, and bound if everything is still as it was."""
        end = begun + self._options.binding_timeout_seconds
        left = end - self._cluster.clock.monotonic()
        check = partial(running.check_waited_for, pod.uid, self._ledger, self._stopping)
        prebind.pause()
        try:
            async with self.gate.wait(pod, left, check, running.nudge):
                prebind.go_on()
                check()
                await self.release_overlaps(found, pod, running.node, check, running.nudge, end)
                await self._ready.confirm(found, ready, pod)
                prebind.pause()
                with self._giving_back.at_the_point(pod):
                    await self._post(pod, running.node)
        except QuorumNotReachedError:
            for each in found:
                await self._giving_back(each, pod)
            raise

    async def _pod(self, namespace: str, name: str, uid: str) -> Pod:
        pod = self.pods.known(namespace, name, uid)
        if pod is None or names_missing(pod):
            # kube-scheduler may have seen a later state of the pod than our watch has brought.
            return await self.pods.read(namespace, name, uid)
        if pod.deleting or self._ledger.pods.gone(uid):
            raise RetryableError(f"pod {namespace}/{name} with UID {uid} does not exist any more")
        return pod

    async def _decided(
        self, running: RunningBind, pod: Pod, extended: ExtendedResourceClaim | None
    ) -> tuple[FoundClaim, ...]:
        """Decide for every open claim of the pod and take it; without any await between decision and taking."""
        budget = self._decision.begin(pod)
        while True:
            found = await self._ours_to_decide(running, pod, extended)
            try:
                decided = self._decision(pod, running.node, found, budget)
                break
            except SearchPaused:
                await self._decision.pause(pod, budget)
            except SpecNotKeptError as missing:
                await self._decision.read(pod, missing, budget)
        self._decision.end(pod, budget)
        stamp = datetime.fromtimestamp(self._cluster.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for claim, placement in decided:
            timed = msgspec.structs.replace(placement.allocation, allocation_timestamp=stamp)
            ours = ClaimPlacement(allocation=timed, holdings=placement.holdings)
            self._ledger.begin_pending(claim.record.claim.metadata.uid, ours)
        node = self._ledger.nodes.get(running.node)
        if node is not None and (claims := relying(found, node, self._ledger)):
            self._ledger.group_starts.begin(pod, node, claims)
        return found

    async def _ours_to_decide(
        self, running: RunningBind, pod: Pod, extended: ExtendedResourceClaim | None
    ) -> tuple[FoundClaim, ...]:
        """The claims of the pod, none of which another bind is writing."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.shared_claim_wait_seconds
        while True:
            running.check_sensible(pod.uid, self._ledger, self._stopping)
            found = find_claims(pod, self._ledger, self._ledger.nodes.get(running.node))
            if isinstance(found, Rejection):
                raise RetryableError(found.text)
            if extended is not None:
                found = (*found, self._extended.known(extended))
            if not any(self._being_written(each.record) for each in found):
                return found
            left = end - loop.time()
            if left <= 0 or not await wait_for_any((self._written, running.nudge), left):
                raise RetryableError(f"pod {pod.key}: another pod's bind is still writing a shared claim")

    def _being_written(self, record: ClaimRecord) -> bool:
        return record.pending is not None or record.claim.metadata.uid in self._set_aside

    async def _make_ours(self, found: Sequence[FoundClaim], pod: Pod, node: str) -> None:
        """Write what was taken, or just the reservation of what is allocated.

        The claims are written at the same time; if one fails, the others are finished first, and the next bind finds them.
        """
        if len(found) == 1:
            await self._own(found[0], pod, node)
            return
        outcomes = await asyncio.gather(*(self._own(each, pod, node) for each in found), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _own(self, claim: FoundClaim, pod: Pod, node: str) -> None:
        record = claim.record
        if record.pending is not None:
            try:
                await self._writing.allocate(record, record.pending, claim.consumer)
            except OutcomeUnknownError:
                self._find_out(record)
                raise
            self._settle(record)
            return
        await self._writing.check_shares(record, claim.consumer.uid)
        if not claim.reserved:
            most = most_entries(claim, pod, self._ledger.nodes.get(node), self._ledger)
            await self._reserve(record, claim.consumer, most)

    def _find_out(self, record: ClaimRecord) -> None:
        """What may be stored stays taken until that is known: nobody else gets these devices meanwhile."""
        uid = record.claim.metadata.uid
        task = self._in_doubt[uid] = self._supervisor.begin(BackgroundTask.BIND, self._writing.look(record))

        def known(_: asyncio.Task[None]) -> None:
            del self._in_doubt[uid]
            self._settle(record)

        task.add_done_callback(known)

    def _settle(self, record: ClaimRecord) -> None:
        self._ledger.end_pending(record.claim.metadata.uid)
        self._written.fire()

    def _give_up_unwritten(self, found: Sequence[FoundClaim]) -> None:
        for each in found:
            if each.record.pending is not None and each.record.claim.metadata.uid not in self._in_doubt:
                self._settle(each.record)

    async def _delivered(self, found: Sequence[FoundClaim], pod: Pod) -> None:
        """Wait until our claim watch has brought these allocations, and with them every one that was stored before.

        Also one that another pod's bind wrote, or an earlier bind of this pod that did not wait so long.
        """
        for each in found:
            if each.record.allocated_version:
                continue
            meta = each.record.claim.metadata
            try:
                alive = await self._ledger.claims.delivered(
                    meta.uid, meta.resource_version, self._options.watch_lag_seconds
                )
            except TimeoutError as late:
                raise RetryableError(f"claim {'/'.join(meta.key)}: the claim watch is behind") from late
            if not alive:
                raise RetryableError(f"claim {'/'.join(meta.key)} was deleted while pod {pod.key} was being bound")

    async def _restore(self, found: Sequence[FoundClaim], before: Sequence[ClaimHead]) -> None:
        """See to it that our allocations have their finalizer, and the snapshot that they had `before` the wait."""
        for each, claim in zip(found, before, strict=True):
            snapshot = claim.metadata.annotations.get(SNAPSHOT_ANNOTATION)
            if snapshot is not None and not is_kept(each.record.claim, snapshot) and is_snapshotted(claim):
                await self._writing.restore(each.record, snapshot)

    async def _post(self, pod: Pod, node: str) -> None:
        try:
            await self._cluster.pods.bind(pod.namespace, pod.name, pod.uid, node)
        except (ConflictError, ServerUnavailableError) as unclear:
            await self._check_bound(pod, node, unclear)
        except ClusterError as problem:
            raise RetryableError(f"pod {pod.key}: {problem}") from problem
        self._refusals.forget(pod.uid)
        self._cool_downs.forget(pod.uid)
        self._ledger.holds.release_pod(pod.uid)

    async def _check_bound(self, pod: Pod, node: str, unclear: ClusterError) -> None:
        """A conflict, or no answer, is success if the pod is on our node already."""
        try:
            live = await self._cluster.pods.read(pod.namespace, pod.name)
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"pod {pod.key}: {unclear}; reading it back: {problem}") from problem
        if live.uid != pod.uid or live.node_name != node:
            raise RetryableError(f"pod {pod.key}: {unclear}") from unclear
