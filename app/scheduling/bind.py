import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.ledger.claims import ClaimRecord
from app.ledger.ledger import Ledger
from app.ledger.signal import Signal
from app.model.allocation import ClaimPlacement
from app.model.base import ModelError
from app.model.pod import Pod
from app.model.rejection import Rejection
from app.scheduling.answers import TryAgain
from app.scheduling.bind_decision import BindDecision
from app.scheduling.binding_wait import BindingWait
from app.scheduling.claim_lookup import FoundClaim, find_claims, names_missing
from app.scheduling.claim_writing import ClaimWriting
from app.scheduling.options import Options
from app.scheduling.overlap import overlapping
from app.scheduling.ports import Cluster, ClusterError, Conflict, NotFound
from app.scheduling.refusals import Refusals
from app.telemetry.metrics import Metrics

_ALREADY: Final = "pod {} is bound to node {} already"


@dataclass(slots=True)
class _Running:
    """A bind in progress and everybody who waits for it."""

    node: str
    task: asyncio.Task[None]
    callers: list[asyncio.Event] = field(default_factory=list)

    @property
    def abandoned(self) -> bool:
        return all(caller.is_set() for caller in self.callers)


class Bind:
    """Makes a pod's devices its own and binds it: decide and take in one step, write, let our own watch confirm, post the Binding.

    Idempotent by pod UID and resumable from API objects alone, so that it may be repeated after any failure, a restart included.
    """

    def __init__(
        self,
        ledger: Ledger,
        decision: BindDecision,
        refusals: Refusals,
        cluster: Cluster,
        metrics: Metrics,
        options: Options,
        stopping: asyncio.Event,
    ) -> None:
        self._ledger = ledger
        self._decision = decision
        self._refusals = refusals
        self._cluster = cluster
        self._metrics = metrics
        self._options = options
        self._writing = ClaimWriting(ledger, cluster.claims, metrics)
        self._ready = BindingWait(ledger, self._writing, cluster.events, cluster.clock, options, stopping)
        self._running: dict[str, _Running] = {}
        self._written = Signal()
        self._set_aside: set[str] = set()

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

    async def __call__(self, namespace: str, name: str, uid: str, node: str, hung_up: asyncio.Event) -> None:
        """Bind the pod to the node; joins a bind of the same pod and node that is still running.

        Raises:
            TryAgain: not bound; the text says why, and a later bind of the pod carries on.
        """
        pod = self._ledger.pods.by_uid(uid)
        if pod is not None and not pod.needs_devices and not pod.node_name:
            await self._post(pod, node)
            return
        running = self._running.get(uid)
        if running is None:
            task = asyncio.create_task(self._transaction(namespace, name, uid, node))
            running = self._running[uid] = _Running(node, task)
            task.add_done_callback(lambda done: self._ended(uid, done))
        elif running.node != node:
            raise TryAgain(f"pod {namespace}/{name} is just being bound to node {running.node}")
        running.callers.append(hung_up)
        await asyncio.shield(running.task)

    async def drain(self) -> None:
        """Wait until the binds in progress have come to an end."""
        while self._running:
            await asyncio.wait([each.task for each in self._running.values()])

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        """Forget the bind; its outcome counts as read even if every caller has gone."""
        self._running.pop(uid, None)
        if not task.cancelled():
            task.exception()

    async def _transaction(self, namespace: str, name: str, uid: str, node: str) -> None:
        pod = await self._pod(namespace, name, uid)
        if pod.node_name:
            if pod.node_name != node:
                raise TryAgain(_ALREADY.format(pod.key, pod.node_name))
            return
        if pod.needs_devices:
            found = await self._decided(pod, node)
            try:
                await self._confirm(await self._make_ours(found), pod)
            finally:
                self._give_up_unwritten(found)
            for each in found:
                await self._ready(each.record, pod, node)
        running = self._running.get(uid)
        if running is not None and running.abandoned:
            raise TryAgain(f"nobody waits for the bind of pod {pod.key} any more; its devices stay reserved for it")
        await self._post(pod, node)

    async def _pod(self, namespace: str, name: str, uid: str) -> Pod:
        pod = self._ledger.pods.by_uid(uid)
        if pod is None or names_missing(pod):
            # kube-scheduler may have seen a later state of the pod than our watch has brought.
            try:
                pod = await self._cluster.pods.read(namespace, name)
            except NotFound as gone:
                raise TryAgain(f"pod {namespace}/{name} does not exist any more") from gone
            except (ClusterError, ModelError) as problem:
                raise TryAgain(f"pod {namespace}/{name}: {problem}") from problem
        if pod.uid != uid or pod.deleting or self._ledger.pods.gone(uid):
            raise TryAgain(f"pod {namespace}/{name} with UID {uid} does not exist any more")
        return pod

    async def _decided(self, pod: Pod, node: str) -> Sequence[FoundClaim]:
        """Decide for every open claim of the pod and take it; without any await between decision and taking."""
        stamp = datetime.fromtimestamp(self._cluster.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.shared_claim_wait_seconds
        while True:
            found = find_claims(pod, self._ledger)
            if isinstance(found, Rejection):
                raise TryAgain(found.text)
            if not any(self._being_written(each.record) for each in found):
                break
            left = end - loop.time()
            if left <= 0 or not await self._written.wait(left):
                raise TryAgain(f"pod {pod.key}: another pod's bind is still writing a shared claim")
        for claim, placement in self._decision(pod, node, found):
            timed = msgspec.structs.replace(placement.allocation, allocation_timestamp=stamp)
            ours = ClaimPlacement(allocation=timed, holdings=placement.holdings)
            self._ledger.take(claim.record.claim.metadata.uid, ours, node)
        return found

    def _being_written(self, record: ClaimRecord) -> bool:
        return record.taken is not None or record.claim.metadata.uid in self._set_aside

    async def _make_ours(self, found: Sequence[FoundClaim]) -> list[ClaimRecord]:
        """Write what was taken, or just the reservation of what is allocated; returns the claims that got an allocation."""
        written: list[ClaimRecord] = []
        for each in found:
            record = each.record
            if record.taken is not None:
                written.append(await self._writing.allocate(record, record.taken, each.consumer))
                self._settle(record)
            elif not each.reserved:
                await self._writing.reserve(record, each.consumer)
        return written

    def _settle(self, record: ClaimRecord) -> None:
        self._ledger.settle(record.claim.metadata.uid)
        self._written.fire()

    def _give_up_unwritten(self, found: Sequence[FoundClaim]) -> None:
        for each in found:
            if each.record.taken is not None:
                self._settle(each.record)

    async def _confirm(self, written: Sequence[ClaimRecord], pod: Pod) -> None:
        """Wait until our claim watch has brought our writes, and yield to whoever stored the same device before."""
        for record in written:
            meta = record.claim.metadata
            try:
                alive = await self._ledger.claims.delivered(
                    meta.uid, meta.resource_version, self._options.watch_lag_seconds
                )
            except TimeoutError as late:
                raise TryAgain(f"claim {'/'.join(meta.key)}: the claim watch is behind") from late
            if not alive:
                raise TryAgain(f"claim {'/'.join(meta.key)} was deleted while pod {pod.key} was being bound")
            clash = overlapping(record, self._ledger.claims, self._ledger.slices)
            if clash is not None:
                await self._writing.release(record, (pod.uid,))
                self._metrics.bound("undone", 0.0)
                device = f"{clash.driver}/{clash.pool}/{clash.device}"
                raise TryAgain(f"claim {'/'.join(meta.key)}: another writer allocated device {device} first")

    async def _post(self, pod: Pod, node: str) -> None:
        try:
            await self._cluster.pods.bind(pod.namespace, pod.name, pod.uid, node)
        except Conflict as conflict:
            await self._check_bound(pod, node, conflict)
        except ClusterError as problem:
            raise TryAgain(f"pod {pod.key}: {problem}") from problem
        self._refusals.settled(pod.uid)
        self._ledger.holds.leave(pod.uid)

    async def _check_bound(self, pod: Pod, node: str, conflict: Conflict) -> None:
        """A conflict is success if the pod is on our node already."""
        try:
            live = await self._cluster.pods.read(pod.namespace, pod.name)
        except (ClusterError, ModelError) as problem:
            raise TryAgain(f"pod {pod.key}: {conflict}; reading it back: {problem}") from problem
        if live.uid != pod.uid or live.node_name != node:
            raise TryAgain(f"pod {pod.key}: {conflict}") from conflict
