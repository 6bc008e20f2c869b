import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from dra_extender.allocator.state.features import Features
from dra_extender.ledger.events import ClaimSpecsDropped, NodeRemoved, PodResolved
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.bind import Bind
from dra_extender.scheduling.binding.conflict_monitor import ForeignAllocations
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.guard_claims import GuardClaims
from dra_extender.scheduling.claims.group_trials import GroupTrials
from dra_extender.scheduling.claims.orphan_reports import OrphanReports
from dra_extender.scheduling.claims.short_claims import ShortClaims
from dra_extender.scheduling.claims.snapshot_reports import SnapshotReports
from dra_extender.scheduling.claims.writer import ClaimWriting
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.fairness.hold_fairness import HoldFairness
from dra_extender.scheduling.filter import Filter, FilterDependencies
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.gang.failure_cache import GangFailures
from dra_extender.scheduling.gang.planner import GangPlanner
from dra_extender.scheduling.podgroup_claims.controller import PodGroupClaimController
from dra_extender.scheduling.ports.cluster import Cluster
from dra_extender.scheduling.ports.errors import FilterResponse, RetryableError
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options, YieldPolicy
from dra_extender.scheduling.ports.shutdown import STOPPING, Shutdown
from dra_extender.scheduling.preempt import Preempt
from dra_extender.scheduling.prioritize import Prioritize
from dra_extender.scheduling.reclaim.controller import ReclaimController, ReclaimDependencies
from dra_extender.scheduling.reclaim.observe import ReclaimFacts
from dra_extender.scheduling.reclaim.rules import ReclaimReason
from dra_extender.scheduling.reclaim.writer import ReclaimResult, ReclaimWriter
from dra_extender.scheduling.requeue.messages import RejectionMessages
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.requeue.waker import Waker, WakerDependencies
from dra_extender.scheduling.search_time.time_slices import TimeSlices
from dra_extender.telemetry.metrics import Metrics

_REPORT_SECONDS: Final = 2.0
_LOG = structlog.get_logger(__name__)


class Extender:
    """The use cases behind the four verbs of the extender protocol, over one ledger and one cluster."""

    def __init__(
        self, ledger: Ledger, cluster: Cluster, metrics: Metrics, options: Options, features: Features
    ) -> None:
        options = replace(options, binding_conditions=features.device_binding_and_status)
        searching = NodeAllocator(ledger, features, options, resumed=metrics.search_resumed)
        self._ledger = ledger
        self.supervisor = supervisor = Supervisor(metrics.background_failed)
        self._cluster = cluster
        self._metrics = metrics
        self.refusals = UnschedulablePods(
            ledger, RejectionMessages(ledger, searching), cluster.events, metrics, cluster.clock
        )
        self.cool_downs = cool_downs = DeviceBackoff(cluster.clock, options.device_cool_down_seconds, self._cooled_down)
        self._prioritize = Prioritize(ledger, options)
        slices = TimeSlices(cluster.clock, options, metrics, ledger.pods)
        short = ShortClaims(ledger, cluster.claims, metrics, slices)
        self._preempt = Preempt(ledger, searching, short, cluster.clock, options)
        decision = BindDecision(ledger, searching, cool_downs, short, options)
        self._stopping = Shutdown()
        self._bind = Bind(ledger, decision, self.refusals, cool_downs, cluster, metrics, options, self._stopping)
        self._pods = self._bind.pods
        likeness, clock = NodeEquivalence(ledger, features), cluster.clock
        judging = NodeEvaluator(ledger, searching, metrics, options.remembered_answers, likeness)
        gate, running = self._bind.gate, self._bind.running
        fairness = HoldFairness(ledger, gate, running, clock, self._holds_are_stale)
        planning = GangPlanner(ledger, searching, likeness, cool_downs, fairness.stale)
        failures = GangFailures(ledger, cool_downs, clock)
        gangs = GangCoordinator(ledger, planning, gate, failures, clock, options, fairness, self._member_assigned)
        fairness.stale.subscribe(lambda _: metrics.reclaimed(ReclaimReason.HOLD_REVOKED, ReclaimResult.DONE))
        self._filter = Filter(
            FilterDependencies(
                ledger=ledger,
                allocator=searching,
                evaluator=judging,
                unschedulable=self.refusals,
                gangs=gangs,
                device_backoff=cool_downs,
                short_claims=short,
                options=options,
            )
        )
        self.waker = Waker(
            WakerDependencies(
                ledger=ledger,
                unschedulable=self.refusals,
                trial=self._filter,
                scheduler=cluster.waker,
                metrics=metrics,
                clock=cluster.clock,
                options=options,
                supervisor=supervisor,
            )
        )
        facts = ReclaimFacts(ledger, self.refusals, running, cluster.clock, options)
        claims = ClaimWriting(ledger, cluster.claims, metrics)
        self.reclaim = ReclaimController(
            ReclaimDependencies(
                ledger=ledger,
                bind=self._bind,
                facts=facts,
                writer=ReclaimWriter(ledger, cluster, claims, facts, cool_downs, options.field_manager),
                metrics=metrics,
                clock=cluster.clock,
                options=options,
                supervisor=supervisor,
            )
        )
        self.group_claims = PodGroupClaimController(ledger, cluster, claims, metrics, options, supervisor)
        self.group_trials = GroupTrials(ledger, cluster, claims, metrics, options)
        self._extended_resources = options.extended_resources
        self._searching, self._devices_beside_counters = searching, options.devices_beside_counters
        self._decide_by_the_api_server()
        self._connect(options)
        self._foreign = ForeignAllocations(
            ledger, self._bind.nudge, cluster.events, metrics, _REPORT_SECONDS, supervisor
        )
        self._guards = self._guarding(options)
        self._orphans, self._snapshots = (
            OrphanReports(ledger, cluster.events, metrics),
            SnapshotReports(ledger, metrics),
        )
        self._background: tuple[asyncio.Task[None], ...] = ()
        self._binds: set[asyncio.Task[None]] = set()

    def _connect(self, options: Options) -> None:
        """Tell the ledger what it goes by and whom it tells, and the metrics what to read."""
        ledger, metrics = self._ledger, self._metrics
        ledger.pod_groups.reservation = options.reserve_for_pod_groups
        ledger.pod_groups.have_claims = options.pod_group_claims
        ledger.pod_groups.ends_entries = options.reclaim_enabled
        ledger.events.subscribe(PodResolved, lambda event: self._bind.nudge((event.pod_uid,)))
        ledger.events.subscribe(NodeRemoved, lambda event: self._bind.nudge_node(event.node))
        ledger.events.subscribe(ClaimSpecsDropped, _specs_dropped)
        metrics.before_render(lambda: metrics.guarded(len(ledger.guards)))
        metrics.before_render(lambda: metrics.held(len(ledger.holds), ledger.holds.multi_node))
        metrics.before_render(lambda: metrics.claims_kept(ledger.claims.kept.total, ledger.claims.kept.short))

    def _guarding(self, options: Options) -> GuardClaims | None:
        if options.yield_policy is not YieldPolicy.GUARD:
            return None
        self._ledger.guards.namespace = options.own_namespace
        guards = GuardClaims(self._ledger, self._cluster.claims, options.own_namespace)
        self._bind.release_overlaps.guards = guards
        return guards

    async def start(self) -> None:
        """Begin the work that goes on between requests; also again after a `stop`."""
        self._stopping.over()
        self._decide_by_the_api_server()
        self._foreign.start()
        if self._guards is not None:
            self._guards.start()
        self._orphans.start()
        going_on = {
            BackgroundTask.WAKE_UP: self.waker.run,
            BackgroundTask.RECLAIM: self.reclaim.run,
            BackgroundTask.GROUP_CLAIMS: self.group_claims.run,
            BackgroundTask.GROUP_TRIALS: self.group_trials.run,
            BackgroundTask.FOREIGN_ALLOCATIONS: self._foreign.run,
        }
        if self._guards is not None:
            going_on[BackgroundTask.GUARD_CLAIMS] = self._guards.run
        keep = self.supervisor.keep
        self._background = tuple(keep(work, partial(self._unless_stopping, run)) for work, run in going_on.items())

    async def stop(self, reason: str = STOPPING) -> None:
        """Answer whoever still waits for a bind, with the reason; let writes in flight end, stop the background work.

        When it is cancelled, because writes do not end, the background work stops all the same.
        """
        self._stopping.begin(reason)
        self._foreign.stop()
        if self._guards is not None:
            self._guards.stop()
        self._orphans.stop()
        self._bind.nudge()
        try:
            await self.group_claims.stop()
            await self.reclaim.stop()
            if self._binds:
                await asyncio.wait(self._binds)
            await self._bind.drain()
        finally:
            background, self._background = self._background, ()
            for each in background:
                each.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def filter(self, pod: Pod | RequestPod, nodes: Sequence[str]) -> FilterResponse:
        """See PodResolver and Filter."""
        self._refuse_when_stopping()
        return await self._filter.run(await self._pods.resolve(pod), nodes)

    async def prioritize(self, pod: Pod | RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """See Prioritize."""
        return self._prioritize.run(pod.uid, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, hung_up: asyncio.Event) -> None:
        """See Bind."""
        self._refuse_when_stopping()
        start = self._cluster.clock.monotonic()
        outcome = "failed"
        task = self.supervisor.begin(
            BackgroundTask.BIND, self._bind.run(namespace, name, uid, node, hung_up), (RetryableError,)
        )
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        try:
            await self._unless_stopped(task)
            outcome = "bound"
        finally:
            self._metrics.bound(outcome, self._cluster.clock.monotonic() - start)

    async def preempt(self, pod: Pod | RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """See PodResolver and Preempt."""
        self._refuse_when_stopping()
        return await self._preempt.run(await self._pods.resolve(pod), victims)

    async def _unless_stopping(self, run: Callable[[], Awaitable[None]]) -> None:
        """A task that failed while the service was about to stop does not begin again."""
        if self._stopping.reason is None:
            await run()

    def _decide_by_the_api_server(self) -> None:
        """Decide what follows from what is known of the API server.

        Extended resources are served by claims if that is wanted and pods can be told of them.  Devices beside counter sets count
        where its release has them, unless the setting says otherwise.
        """
        beside = self._devices_beside_counters
        counted = beside is DevicesBesideCounters.ALWAYS or (
            beside is DevicesBesideCounters.AUTO and self._cluster.has_devices_beside_counters
        )
        self._searching.count_devices_beside_counters(counted=counted)
        self._ledger.serves_extended_resources = self._extended_resources and self._cluster.keeps_extended_claims

    def _cooled_down(self, pod_uid: str) -> None:
        """Devices that a pod left alone are devices again, for a pod that could have used them."""
        self.waker.reconsider(pod_uid, "cool_down")

    def _member_assigned(self, pod_uid: str) -> None:
        """A member of a gang that may have been refused before has an assignment now."""
        self.waker.reconsider(pod_uid, "gang")

    def _holds_are_stale(self, pod_uid: str) -> None:
        """The holds that keep a refused pod out may be stale by now, and are revoked when it is asked about again."""
        self.waker.reconsider(pod_uid, "holds")

    def _refuse_when_stopping(self) -> None:
        if self._stopping.reason is not None:
            raise RetryableError(self._stopping.reason)

    async def _unless_stopped(self, bind: asyncio.Task[None]) -> None:
        """Wait for the bind; a stop of the service ends the waiting, not a write in flight."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({bind, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if bind.done():
            return bind.result()
        bind.add_done_callback(_outcome_is_known)
        raise RetryableError(f"{self._stopping.reason}; the next bind of the pod carries on")


def _specs_dropped(event: ClaimSpecsDropped) -> None:
    _LOG.warning(
        "the claims of a namespace take more than is kept; further specs are read again when needed",
        namespace=event.namespace,
    )


def _outcome_is_known(bind: asyncio.Task[None]) -> None:
    if not bind.cancelled():
        bind.exception()
