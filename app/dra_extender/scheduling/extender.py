"""The entrance of the use cases: builds them, runs their background work, and answers the four verbs."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import structlog

from dra_extender.allocator.fragmentation.kinds import ExpectedPod
from dra_extender.allocator.state.features import Features
from dra_extender.ledger.events import ClaimSpecsDropped, NodeRemoved, PodResolved, Subscription
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel_all
from dra_extender.scheduling.binding.bind import Bind
from dra_extender.scheduling.binding.busy_claims import BusyClaims
from dra_extender.scheduling.binding.competitors import Competitors
from dra_extender.scheduling.binding.condition_wait import ConditionWait
from dra_extender.scheduling.binding.conflicts import ConflictYield
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.binding.guards import GuardClaims, GuardReservations
from dra_extender.scheduling.binding.reports import ClaimReports, ConflictMonitor
from dra_extender.scheduling.binding.reservations import ClaimReserver, Unreserve
from dra_extender.scheduling.call_budget import Awaited, CallBudget
from dra_extender.scheduling.claims.extended_claims import ExtendedClaims
from dra_extender.scheduling.claims.group_entries import GroupEntryWatch
from dra_extender.scheduling.claims.live_reads import PodResolver, SpecReader, UndeliveredClaims
from dra_extender.scheduling.claims.lookup import gang_of
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator, Prefetch
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.least_loss import LeastLoss
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.node_results import NodeResults
from dra_extender.scheduling.filter import Filter
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.gang.permit import Permit
from dra_extender.scheduling.gang.planner import GangPlanner
from dra_extender.scheduling.gang.plans import GangDiagnosis
from dra_extender.scheduling.hold_report import HoldReporter
from dra_extender.scheduling.holds.fairness import HoldFairness
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.holds.stale_holds import StaleHolds
from dra_extender.scheduling.podgroup_claims.controller import PodGroupClaimController
from dra_extender.scheduling.ports.cluster import Cluster
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options, PlacementPolicy, YieldPolicy
from dra_extender.scheduling.ports.shutdown import STOPPING, Shutdown
from dra_extender.scheduling.preempt import Preempt
from dra_extender.scheduling.prioritize import PlainPods, Prioritize
from dra_extender.scheduling.reclaim.controller import ReclaimController, ReclaimResult
from dra_extender.scheduling.reclaim.release_reasons import ReclaimFacts, ReclaimReason
from dra_extender.scheduling.requeue.event_notes import EventNotes
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.requeue.waker import Waker
from dra_extender.scheduling.time_slices import TimeSlices
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import NO_SPANS, Spans
from dra_extender.telemetry.upstream_metrics import UNSCHEDULABLE

_LOG = structlog.get_logger(__name__)


class Extender:
    """The use cases behind the four verbs of the extender protocol, over one ledger and one cluster."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        metrics: Metrics,
        options: Options,
        features: Features,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._metrics = metrics
        self._options = options = replace(options, binding_conditions=features.device_binding_and_status)
        self._shutdown = Shutdown()
        self.supervisor = Supervisor(metrics.background_failed)
        equivalence = NodeEquivalence(ledger, features)
        preserves = options.placement is PlacementPolicy.PRESERVE
        self.expected = ExpectedDemand(ledger, equivalence) if preserves else None
        self.allocator = NodeAllocator(
            ledger, features, options, resumed=metrics.searches_resumed.inc, expected=self.expected
        )
        self._holds = HoldService(ledger, cluster.clock, options)
        time_slices = TimeSlices(cluster.clock, options, metrics, ledger.pods)
        self._spec_reader = SpecReader(ledger, cluster.claims, metrics, time_slices)
        self.device_backoff = DeviceBackoff(
            cluster.clock, options.device_backoff_seconds, lambda pod_uid: self.waker.reconsider(pod_uid, "backoff")
        )
        notes = EventNotes(ledger, self.allocator)
        self.unschedulable = UnschedulablePods(ledger, notes, cluster.events, metrics, cluster.clock)
        self.claim_writer = ClaimWriter(ledger, cluster.claims, metrics)
        self.binder = self._build_bind(spans)
        self._filter = self._build_filter(equivalence)
        expected = self.expected
        plain_pods = None if expected is None else PlainPods(ledger, expected, self.allocator, cluster.clock)
        self._prioritize = Prioritize(ledger, options, plain_pods)
        self._preempt = Preempt(ledger, self.allocator, self._spec_reader, cluster.clock, options)

        self.waker = Waker(
            ledger,
            self.unschedulable,
            self._holds,
            self._filter.may_fit,
            self._spec_reader,
            cluster,
            metrics,
            options,
            self.supervisor,
        )
        self.conflict_monitor = ConflictMonitor(ledger, cluster.events, metrics, self.supervisor, self.binder.recheck)
        self._claim_reports = ClaimReports(ledger, cluster.events, metrics)
        self.reclaim = ReclaimController(
            ledger=ledger,
            cluster=cluster,
            facts=ReclaimFacts(ledger, self.unschedulable, self.binder.pods_being_bound, cluster.clock, options),
            claim_writer=self.claim_writer,
            busy_claims=self._busy_claims,
            holds=self._holds,
            device_backoff=self.device_backoff,
            metrics=metrics,
            options=options,
            supervisor=self.supervisor,
        )
        self.group_claims = PodGroupClaimController(
            ledger, cluster, self.claim_writer, metrics, options, self.supervisor
        )
        self.group_entry_watch = GroupEntryWatch(ledger, cluster, self.claim_writer, metrics, options)

        ledger.pod_groups.entry_policy = options.reserve_for_pod_groups
        ledger.pod_groups.have_claims = options.pod_group_claims
        ledger.pod_groups.ends_entries = options.reclaim_enabled
        ledger.guards.namespace = options.own_namespace
        self._apply_server_features()
        self._subscribe()
        self._publish_metrics()
        self._subscriptions: list[Subscription] = []
        self._background: tuple[asyncio.Task[None], ...] = ()
        self._binds: set[asyncio.Task[None]] = set()

    def _build_bind(self, spans: Spans) -> Bind:
        ledger, cluster, metrics, options = self._ledger, self._cluster, self._metrics, self._options
        clock, backoff, writer = cluster.clock, self.device_backoff, self.claim_writer
        supervisor = self.supervisor
        unreserve = Unreserve(ledger.pods, writer)
        makes_guards = options.yield_policy is YieldPolicy.GUARD
        self.guards = GuardClaims(ledger, cluster.claims, options.own_namespace, makes_guards=makes_guards)
        competitors = Competitors(ledger, self.allocator, options.scheduler_names)
        self.guard_reservations = GuardReservations(
            ledger, clock, writer, self.guards, competitors, options.search_slice_seconds
        )
        conflicts = ConflictYield(
            ledger,
            clock,
            self.allocator,
            unreserve,
            backoff,
            self.guards,
            self.guard_reservations,
            metrics,
            options,
        )
        self._pods = PodResolver(ledger, cluster.pods, cluster.pod_groups, clock, options)
        self.permit = Permit(ledger, clock, options.reclaim_grace_seconds)
        self._busy_claims = BusyClaims(ledger, writer, supervisor)
        return Bind(
            ledger=ledger,
            cluster=cluster,
            metrics=metrics,
            options=options,
            shutdown=self._shutdown,
            pods=self._pods,
            decision=BindDecision(ledger, self.allocator, backoff, self._holds),
            spec_reader=self._spec_reader,
            extended=ExtendedClaims(ledger, writer, cluster, options.field_manager),
            busy_claims=self._busy_claims,
            writer=writer,
            reserver=ClaimReserver(writer, supervisor),
            unreserve=unreserve,
            conditions=ConditionWait(ledger, cluster, metrics, options, unreserve, backoff, conflicts),
            conflicts=conflicts,
            permit=self.permit,
            holds=self._holds,
            unschedulable=self.unschedulable,
            backoff=backoff,
            spans=spans,
            supervisor=supervisor,
        )

    def _build_filter(self, equivalence: NodeEquivalence) -> Filter:
        ledger, metrics, options, clock = self._ledger, self._metrics, self._options, self._cluster.clock
        backoff, permit = self.device_backoff, self.permit
        # The holds in the pod's way may be stale by now; a filter call for the pod revokes them.
        fairness = HoldFairness(ledger, clock, lambda pod_uid: self.waker.reconsider(pod_uid, "holds"))
        stale = StaleHolds(ledger, self.allocator, fairness, permit, self.binder.pods_being_bound, self._holds, clock)
        stale.subscribe(lambda _: metrics.reclaims.labels(ReclaimReason.HOLD_REVOKED, ReclaimResult.DONE).inc())
        self.gangs = GangCoordinator(
            ledger,
            GangPlanner(ledger, self.allocator, equivalence, backoff, stale),
            permit,
            self._holds,
            fairness,
            stale,
            lambda pod_uid: self.waker.reconsider(pod_uid, "gang"),
        )
        self.hold_reporter = HoldReporter(
            ledger, self.gangs.plans, permit, clock, binding_timeout=options.binding_timeout_seconds
        )
        expected, limit = self.expected, options.result_cache_entries
        results = NodeResults(ledger, self.allocator, metrics, limit, equivalence, packing=expected is None)
        least_loss = None if expected is None else LeastLoss(ledger, self.allocator, expected)
        evaluator = NodeEvaluator(ledger, metrics, results, least_loss)
        prefetch = Prefetch(evaluator, ledger, clock, options.offered_nodes, rates_nodes=expected is not None)
        time_slices = self._spec_reader.time_slices
        return Filter(
            ledger=ledger,
            clock=clock,
            options=options,
            evaluator=evaluator,
            expected=expected,
            gangs=self.gangs,
            backoff=backoff,
            fairness=fairness,
            stale=stale,
            holds=self._holds,
            prefetch=prefetch,
            time_slices=time_slices,
            spec_reader=self._spec_reader,
            undelivered=UndeliveredClaims(ledger, self._cluster.claims, time_slices, options),
            unschedulable=self.unschedulable,
        )

    def _apply_server_features(self) -> None:
        """Set what depends on the API server's features, as far as they are known by now.

        Claims serve extended resources if the setting says so and the API server keeps the field of pods that names such a claim.
        Devices beside counter sets count where the API server's release has them, unless the setting says otherwise.
        """
        cluster, options = self._cluster, self._options
        setting = options.devices_beside_counters
        counted = setting is DevicesBesideCounters.ALWAYS or (
            setting is DevicesBesideCounters.AUTO and cluster.has_devices_beside_counters
        )
        self.allocator.count_devices_beside_counters(counted=counted)
        self._ledger.serves_extended_resources = options.extended_resources and cluster.keeps_extended_claims

    def _subscribe(self) -> None:
        """Have binds that wait look again when the ledger learns of a pod or a node; report dropped specs."""
        events, bind = self._ledger.events, self.binder
        dropped = "the claims of a namespace take more than is kept; further specs are read again when needed"
        events.subscribe(PodResolved, lambda event: bind.recheck((event.pod_uid,)))
        events.subscribe(NodeRemoved, lambda event: bind.recheck_node(event.node))
        events.subscribe(ClaimSpecsDropped, lambda event: _LOG.warning(dropped, namespace=event.namespace))

    def _publish_metrics(self) -> None:
        ledger, metrics = self._ledger, self._metrics

        def refresh() -> None:
            metrics.guard_claims.set(len(ledger.guards))
            metrics.held_claims.set(len(ledger.holds))
            metrics.multi_node_holds.set(ledger.holds.multi_node)
            metrics.claims_kept_bytes.set(ledger.claims.kept.total)
            metrics.claims_kept_short.set(ledger.claims.kept.without_spec)
            if self.expected is not None:
                metrics.expected(self.expected.report())

        metrics.before_render(refresh)
        metrics.before_render(self.unschedulable.publish)

    async def start(self) -> None:
        """Begin the work that goes on between requests; also again after a `stop`."""
        self._shutdown.end()
        self._apply_server_features()
        if self.expected is not None:
            self.expected.learn_again()
        work = {
            BackgroundTask.WAKE_UP: self.waker.keep_waking,
            BackgroundTask.RECLAIM: self.reclaim.keep_reclaiming,
            BackgroundTask.GROUP_CLAIMS: self.group_claims.keep_reconciling,
            BackgroundTask.GROUP_TRIALS: self.group_entry_watch.keep_looking,
            BackgroundTask.FOREIGN_ALLOCATIONS: self.conflict_monitor.keep_reporting,
            BackgroundTask.GUARD_CLAIMS: self.guards.keep_guards,
            BackgroundTask.GUARD_RESERVATIONS: self.guard_reservations.keep_ending,
        }
        observers = (self.conflict_monitor, self._claim_reports, self.guards, self.guard_reservations)
        self._subscriptions = [subscription for observer in observers for subscription in observer.subscribe()]
        keep = self.supervisor.keep
        self._background = tuple(keep(task, partial(self._unless_stopping, loop)) for task, loop in work.items())

    async def stop(self, reason: str = STOPPING) -> None:
        """Answer every bind that waits with the reason; let writes in flight end, stop the background work.

        When it is cancelled, because writes do not end, the background work stops all the same.
        """
        self._shutdown.begin(reason)
        for subscription in self._subscriptions:
            subscription.close()
        self.guard_reservations.forget_all()
        self.binder.recheck()
        try:
            await self.group_claims.stop()
            await self.reclaim.stop()
            if self._binds:
                await asyncio.wait(self._binds)
            await self.binder.drain()
        finally:
            background, self._background = self._background, ()
            await cancel_all(background)

    async def filter(self, pod: Pod | RequestPod, nodes: Sequence[str]) -> FilterResponse:
        """Return where the pod fits, as the watch or the API server has it."""
        self._check_running()
        with self._metrics.upstream.execution("Filter") as execution:
            response = await self._filter.filter(await self._pods.resolve(pod), nodes)
            if response.unresolvable and not response.fitting:
                execution.status = UNSCHEDULABLE
            return response

    def expect(self, pods: Sequence[ExpectedPod]) -> None:
        """Expect these pods instead of those learned from filter calls; without pods, go on learning."""
        if self.expected is not None:
            self.expected.expect(pods)

    def learn_expected(self) -> None:
        """Learn from all pods of the ledger which pods are expected, where that counts; without a limit of time."""
        if self.expected is not None:
            self.expected.renew_all(self.allocator)

    def evaluate(self, pod: Pod, nodes: Sequence[str], seconds: float = math.inf) -> FilterResult:
        """Return where the pod fits now; nodes that are not searched after so many seconds are rejected with SEARCH_LIMIT."""
        pod = self._ledger.pods.newest(pod)
        budget = CallBudget(self._cluster.clock, seconds)
        if seconds < math.inf:
            budget.open_slice(seconds)
        gang = gang_of(pod, self._ledger)
        result = self._filter.evaluate(pod, nodes, budget, gang)
        if result.unfinished is Awaited.TIME_SLICE:
            budget.close()
            result = self._filter.evaluate(pod, nodes, budget, gang)
        return result

    def evaluate_without_gang(self, pod: Pod, nodes: Sequence[str]) -> FilterResult:
        """Return where the pod fits now, as if it were in no gang; without a limit of time."""
        budget = CallBudget(self._cluster.clock, math.inf)
        return self._filter.evaluate(self._ledger.pods.newest(pod), nodes, budget, gang=None)

    def diagnose_gang(
        self, pod: Pod, nodes: Sequence[str], *, partly: bool = True
    ) -> AbstractContextManager[GangDiagnosis] | None:
        """Return the account of the pod's gang, taken without a limit of time; None for a pod that is in no gang."""
        gang = gang_of(pod, self._ledger)
        budget = CallBudget(self._cluster.clock, math.inf)
        return None if gang is None else self.gangs.diagnose(gang, nodes, budget, partly=partly)

    def forget_plan(self, pod: Pod) -> None:
        """Drop the plan of the pod's gang, which `evaluate` made, and its holds."""
        gang = gang_of(pod, self._ledger)
        if gang is not None:
            self.gangs.revoke(gang.metadata.uid)

    async def prioritize(self, pod: Pod | RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return the score of each node, from 0 to 10."""
        return self._prioritize.score_nodes(pod.uid, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event) -> None:
        """Bind the pod to the node; once `disconnected` is set for every caller, no Binding is posted any more."""
        self._check_running()
        clock, metrics = self._cluster.clock, self._metrics
        start = clock.monotonic()
        outcome = "failed"
        # One task for each caller, so that a stop ends its waiting; `bind_pod` has one for each pod, which callers share.
        task = self.supervisor.begin(
            BackgroundTask.BIND, self.binder.bind_pod(namespace, name, uid, node, disconnected), (RetryableError,)
        )
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        try:
            with metrics.upstream.execution("PreBind"):
                # A stop of the service ends the waiting, not a write in flight.
                await self._shutdown.wait_unless_stopping(task)
                if not task.done():
                    raise RetryableError(f"{self._shutdown.reason}; the next bind of the pod carries on")
                task.result()
            outcome = "bound"
        finally:
            metrics.bound(outcome, clock.monotonic() - start)

    async def preempt(self, pod: Pod | RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Return the nodes on which the eviction of these pods lets the pod have its devices."""
        self._check_running()
        with self._metrics.upstream.execution("PostFilter") as execution:
            feasible_nodes = await self._preempt.keep_feasible(await self._pods.resolve(pod), victims)
            if not feasible_nodes:
                execution.status = UNSCHEDULABLE
            return feasible_nodes

    def _check_running(self) -> None:
        if self._shutdown.reason is not None:
            raise RetryableError(self._shutdown.reason)

    async def _unless_stopping(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._shutdown.reason is None:
            await work()
