"""The entrance of the use cases: builds them, runs their background work, and answers the four verbs."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import structlog

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.accounts import Among, DeviceAccount
from dra_extender.allocator.pools.pools import NodePools
from dra_extender.allocator.state.features import Features
from dra_extender.cel.budget import Budget
from dra_extender.ledger.events import ClaimSpecsDropped, NodeRemoved, PodResolved
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel_all
from dra_extender.scheduling.binding.bind import Bind
from dra_extender.scheduling.binding.competitors import Competitors
from dra_extender.scheduling.binding.condition_wait import ConditionWait
from dra_extender.scheduling.binding.decision import BindDecision, PendingClaims
from dra_extender.scheduling.binding.guards import GuardClaims, GuardReservations
from dra_extender.scheduling.binding.reports import ClaimReports, ConflictMonitor
from dra_extender.scheduling.binding.yielding import ConflictYield
from dra_extender.scheduling.claims.group_entries import GroupTrials
from dra_extender.scheduling.claims.live_reads import SpecReader, UndeliveredClaims
from dra_extender.scheduling.claims.reservations import ClaimReserver, Unreserve
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, Pending
from dra_extender.scheduling.extended_resources.claims import ExtendedClaims
from dra_extender.scheduling.filter import Filter
from dra_extender.scheduling.gang.account import GangAccount
from dra_extender.scheduling.gang.coordinator import GangCoordinator
from dra_extender.scheduling.gang.planner import GangPlanner
from dra_extender.scheduling.gang.plans import GangFailures, GangHolds
from dra_extender.scheduling.hold_report import HoldReporter
from dra_extender.scheduling.hold_service import HoldService
from dra_extender.scheduling.holds.node_offers import NodeOffers
from dra_extender.scheduling.holds.shares import HoldShares
from dra_extender.scheduling.holds.stale import StaleHolds
from dra_extender.scheduling.permit.permit import Permit
from dra_extender.scheduling.pod_resolver import PodResolver
from dra_extender.scheduling.podgroup_claims.controller import PodGroupClaimController
from dra_extender.scheduling.ports.cluster import Cluster
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import STOPPING, FilterResponse, RetryableError, Shutdown
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options, YieldPolicy
from dra_extender.scheduling.preempt import Preempt
from dra_extender.scheduling.reclaim.controller import ReclaimController, ReclaimResult, ReclaimWriter
from dra_extender.scheduling.reclaim.unused import ReclaimFacts, ReclaimReason
from dra_extender.scheduling.requeue.messages import RejectionMessages
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods
from dra_extender.scheduling.requeue.waker import Waker
from dra_extender.scheduling.time_slices import CallBudget, TimeSlices
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import NO_SPANS, Spans
from dra_extender.telemetry.upstream import UNSCHEDULABLE

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
        options = replace(options, binding_conditions=features.device_binding_and_status)
        self.supervisor = Supervisor(metrics.background_failed)
        self._context = SchedulingContext(ledger, cluster, metrics, options, self.supervisor, Shutdown(), spans)
        self._allocator = NodeAllocator(ledger, features, options, resumed=metrics.searches_resumed.inc)
        self._equivalence = NodeEquivalence(ledger, features)
        self._holds = HoldService(ledger, cluster.clock, options)
        time_slices = TimeSlices(cluster.clock, options, metrics, ledger.pods)
        self._spec_reader = SpecReader(ledger, cluster.claims, metrics, time_slices)
        self.device_backoff = DeviceBackoff(cluster.clock, options.device_backoff_seconds, self._backoff_ended)
        messages = RejectionMessages(ledger, self._allocator)
        self.unschedulable = UnschedulablePods(ledger, messages, cluster.events, metrics, cluster.clock)

        self.binder = self._build_bind()
        self._filter = self._build_filter()
        self._preempt = Preempt(self._context, self._allocator, self._spec_reader)

        self.waker = Waker(
            ledger, self.unschedulable, self._holds, self._filter, cluster, metrics, options, self.supervisor
        )
        self.conflict_monitor = ConflictMonitor(ledger, cluster.events, metrics, self.supervisor, self.binder.recheck)
        self._claim_reports = ClaimReports(ledger, cluster.events, metrics)
        writer = ClaimWriter(ledger, cluster.claims, metrics)
        self.reclaim = self._build_reclaim(writer)
        self.group_claims = PodGroupClaimController(ledger, cluster, writer, metrics, options, self.supervisor)
        self.group_trials = GroupTrials(self._context, writer)

        self._configure_ledger()
        self._apply_server_features()
        self._subscribe()
        self._publish_metrics()
        self._background: tuple[asyncio.Task[None], ...] = ()
        self._binds: set[asyncio.Task[None]] = set()

    def _build_bind(self) -> Bind:
        context, ledger, cluster = self._context, self._context.ledger, self._context.cluster
        metrics, options, clock, backoff = context.metrics, context.options, context.clock, self.device_backoff
        supervisor = Supervisor(metrics.background_failed)
        writer = ClaimWriter(ledger, cluster.claims, metrics)
        unreserve = Unreserve(ledger, writer)
        makes_guards = options.yield_policy is YieldPolicy.GUARD
        self.guards = GuardClaims(ledger, cluster.claims, options.own_namespace, makes_guards=makes_guards)
        competitors = Competitors(ledger, self._allocator, options.scheduler_names)
        self.guard_reservations = GuardReservations(
            ledger, clock, writer, self.guards, competitors, options.search_slice_seconds
        )
        conflicts = ConflictYield(
            ledger,
            clock,
            self._allocator,
            unreserve,
            backoff,
            self.guards,
            self.guard_reservations,
            metrics,
            options,
        )
        self._pods = PodResolver(ledger, cluster.pods, clock, options)
        self.permit = Permit(ledger, clock, options.reclaim_grace_seconds)
        self._pending = PendingClaims(ledger, writer, supervisor)
        return Bind(
            ledger=ledger,
            cluster=cluster,
            metrics=metrics,
            options=options,
            shutdown=context.shutdown,
            pods=self._pods,
            decision=BindDecision(ledger, self._allocator, backoff, self._holds),
            spec_reader=self._spec_reader,
            extended=ExtendedClaims(ledger, writer, cluster, self._holds, options.field_manager),
            pending=self._pending,
            writer=writer,
            reserver=ClaimReserver(writer, supervisor),
            unreserve=unreserve,
            conditions=ConditionWait(ledger, cluster, metrics, options, unreserve, backoff, conflicts),
            conflicts=conflicts,
            permit=self.permit,
            holds=self._holds,
            unschedulable=self.unschedulable,
            backoff=backoff,
            spans=context.spans,
            supervisor=supervisor,
        )

    def _build_filter(self) -> Filter:
        context, backoff, permit, spec_reader = self._context, self.device_backoff, self.permit, self._spec_reader
        ledger, metrics, options, clock = context.ledger, context.metrics, context.options, context.clock
        shares = HoldShares(ledger, clock, self._holds_became_stale)
        stale = StaleHolds(ledger, shares, permit, self.binder.pods_being_bound, self._holds, clock)
        stale.subscribe(lambda _: metrics.reclaims.labels(ReclaimReason.HOLD_REVOKED, ReclaimResult.DONE).inc())
        gangs = GangCoordinator(
            ledger,
            GangPlanner(ledger, self._allocator, self._equivalence, backoff, stale),
            permit,
            GangFailures(ledger, backoff, clock),
            GangHolds(ledger, self._holds),
            shares,
            stale,
            self._member_assigned,
        )
        self.holds = HoldReporter(ledger, gangs.plans, permit, clock, binding_timeout=options.binding_timeout_seconds)
        evaluator = NodeEvaluator(ledger, self._allocator, metrics, options.result_cache_entries, self._equivalence)
        prefetch = Prefetch(evaluator, ledger, clock, options.offered_nodes)
        self._offers = NodeOffers(ledger, shares, self._holds, prefetch, options)
        return Filter(
            context,
            evaluator,
            gangs,
            backoff,
            self._holds,
            self._offers,
            spec_reader,
            UndeliveredClaims(ledger, context.cluster.claims, spec_reader.slices, options),
            self.unschedulable,
        )

    def _build_reclaim(self, writer: ClaimWriter) -> ReclaimController:
        context, ledger, options = self._context, self._context.ledger, self._context.options
        facts = ReclaimFacts(ledger, self.unschedulable, self.binder.pods_being_bound, context.clock, options)
        reclaim_writer = ReclaimWriter(
            ledger, context.cluster, writer, facts, self._pending, self.device_backoff, options.field_manager
        )
        return ReclaimController(
            ledger, facts, reclaim_writer, self._holds, context.clock, context.metrics, options, context.supervisor
        )

    def _configure_ledger(self) -> None:
        """Set what the ledger's indexes go by."""
        ledger, options = self._context.ledger, self._context.options
        ledger.pod_groups.reservation = options.reserve_for_pod_groups
        ledger.pod_groups.have_claims = options.pod_group_claims
        ledger.pod_groups.ends_entries = options.reclaim_enabled
        ledger.guards.namespace = options.own_namespace

    def _apply_server_features(self) -> None:
        """Set what depends on the API server's features, as far as they are known by now.

        Claims serve extended resources if the setting says so and the API server keeps the field of pods that names such a claim.
        Devices beside counter sets count where the API server's release has them, unless the setting says otherwise.
        """
        cluster, options = self._context.cluster, self._context.options
        beside = options.devices_beside_counters
        counted = beside is DevicesBesideCounters.ALWAYS or (
            beside is DevicesBesideCounters.AUTO and cluster.has_devices_beside_counters
        )
        self._allocator.count_devices_beside_counters(counted=counted)
        self._context.ledger.serves_extended_resources = options.extended_resources and cluster.keeps_extended_claims

    def _subscribe(self) -> None:
        """Have binds that wait look again when the ledger learns of a pod or a node; report dropped specs."""
        events, bind = self._context.ledger.events, self.binder
        events.subscribe(PodResolved, lambda event: bind.recheck((event.pod_uid,)))
        events.subscribe(NodeRemoved, lambda event: bind.recheck_node(event.node))
        events.subscribe(ClaimSpecsDropped, _report_dropped_specs)

    def _publish_metrics(self) -> None:
        ledger, metrics = self._context.ledger, self._context.metrics

        def refresh() -> None:
            metrics.guard_claims.set(len(ledger.guards))
            metrics.held_claims.set(len(ledger.holds))
            metrics.unsettled_claims.set(ledger.holds.multi_node)
            metrics.claims_kept_bytes.set(ledger.claims.kept.total)
            metrics.claims_kept_short.set(ledger.claims.kept.without_spec)

        metrics.before_render(refresh)
        metrics.before_render(self.unschedulable.publish)

    async def start(self) -> None:
        """Begin the work that goes on between requests; also again after a `stop`."""
        self._context.shutdown.end()
        self._apply_server_features()
        work = {
            BackgroundTask.WAKE_UP: self.waker.keep_waking,
            BackgroundTask.RECLAIM: self.reclaim.keep_reclaiming,
            BackgroundTask.GROUP_CLAIMS: self.group_claims.keep_reconciling,
            BackgroundTask.GROUP_TRIALS: self.group_trials.keep_looking,
            BackgroundTask.FOREIGN_ALLOCATIONS: self.conflict_monitor.keep_reporting,
            BackgroundTask.GUARD_CLAIMS: self.guards.keep_guards,
            BackgroundTask.GUARD_RESERVATIONS: self.guard_reservations.keep_ending,
        }
        self.conflict_monitor.start()
        self._claim_reports.start()
        self.guards.start()
        self.guard_reservations.start()
        keep = self.supervisor.keep
        self._background = tuple(keep(task, partial(self._unless_stopping, run)) for task, run in work.items())

    async def stop(self, reason: str = STOPPING) -> None:
        """Answer every bind that waits with the reason; let writes in flight end, stop the background work.

        When it is cancelled, because writes do not end, the background work stops all the same.
        """
        self._context.shutdown.begin(reason)
        self.conflict_monitor.stop()
        self._claim_reports.stop()
        self.guards.stop()
        self.guard_reservations.stop()
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
        """See PodResolver and Filter."""
        self._check_running()
        with self._context.metrics.upstream.execution("Filter") as execution:
            found = await self._filter.filter(await self._pods.resolve(pod), nodes)
            if (found.failed or found.unresolvable) and not found.fitting:
                execution.status = UNSCHEDULABLE
            return found

    def evaluate(self, pod: Pod, nodes: Sequence[str], seconds: float = math.inf) -> FilterResult:
        """See Filter.evaluate; nodes that are not searched after so many seconds are rejected with SEARCH_LIMIT."""
        pod = self._context.ledger.pods.newest(pod)
        budget = CallBudget(self._context.clock, seconds)
        if seconds < math.inf:
            budget.open_slice(seconds)
        result = self._filter.evaluate(pod, nodes, budget)
        if result.unfinished is Pending.TIME_SLICE:
            budget.close()
            result = self._filter.evaluate(pod, nodes, budget)
        return result

    def evaluate_alone(self, pod: Pod, nodes: Sequence[str]) -> FilterResult:
        """See Filter.evaluate_alone; without a limit of time."""
        budget = CallBudget(self._context.clock, math.inf)
        return self._filter.evaluate_alone(self._context.ledger.pods.newest(pod), nodes, budget)

    def record_offer(self, pod: Pod, nodes: Sequence[str]) -> None:
        """See GangCoordinator.record_offer."""
        self._filter.gangs.record_offer(pod, nodes)

    def gang_account(
        self, pod: Pod, nodes: Sequence[str], *, partly: bool = True
    ) -> AbstractContextManager[GangAccount] | None:
        """See Filter.gang_account; without a limit of time."""
        return self._filter.gang_account(pod, nodes, CallBudget(self._context.clock, math.inf), partly=partly)

    def forget_plan(self, pod: Pod) -> None:
        """See Filter.forget_plan."""
        self._filter.forget_plan(pod)

    def accounts(
        self,
        demand: Demand,
        node: Node,
        request: tuple[str, str],
        budget: Budget | None = None,
        *,
        explains_selectors: bool = True,
        among: Among | None = None,
    ) -> Iterator[DeviceAccount]:
        """See NodeAllocator.accounts."""
        usage = self._context.ledger.usage()
        return self._allocator.accounts(
            demand, node, usage, request, budget, explains_selectors=explains_selectors, among=among
        )

    def pools_of(self, node: Node) -> NodePools | None:
        """See NodeAllocator.pools_of."""
        return self._allocator.pools_of(node)

    async def prioritize(self, pod: Pod | RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """See Prioritize."""
        return self._offers.score(pod.uid, nodes)

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event) -> None:
        """See Bind."""
        self._check_running()
        clock, metrics = self._context.clock, self._context.metrics
        start = clock.monotonic()
        outcome = "failed"
        task = self.supervisor.begin(
            BackgroundTask.BIND, self.binder.bind_pod(namespace, name, uid, node, disconnected), (RetryableError,)
        )
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        try:
            with metrics.upstream.execution("PreBind"):
                await self._unless_stopped(task)
            outcome = "bound"
        finally:
            metrics.bound(outcome, clock.monotonic() - start)

    async def preempt(self, pod: Pod | RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """See PodResolver and Preempt."""
        self._check_running()
        with self._context.metrics.upstream.execution("PostFilter") as execution:
            kept = await self._preempt.keep_feasible(await self._pods.resolve(pod), victims)
            if not kept:
                execution.status = UNSCHEDULABLE
            return kept

    def _check_running(self) -> None:
        """Raise RetryableError if the service stops."""
        if self._context.shutdown.reason is not None:
            raise RetryableError(self._context.shutdown.reason)

    async def _unless_stopping(self, run: Callable[[], Awaitable[None]]) -> None:
        """A task that failed while the service was about to stop does not begin again."""
        if self._context.shutdown.reason is None:
            await run()

    async def _unless_stopped(self, bind: asyncio.Task[None]) -> None:
        """Wait for the bind; a stop of the service ends the waiting, not a write in flight."""
        shutdown = self._context.shutdown
        await shutdown.wait_unless_begun(bind)
        if bind.done():
            return bind.result()
        bind.add_done_callback(_outcome_is_known)
        raise RetryableError(f"{shutdown.reason}; the next bind of the pod carries on")

    def _backoff_ended(self, pod_uid: str) -> None:
        """The backoff of devices has ended for a pod that could have used them."""
        self.waker.reconsider(pod_uid, "cool_down")

    def _member_assigned(self, pod_uid: str) -> None:
        """A member of a gang that may have been rejected before has an assignment now."""
        self.waker.reconsider(pod_uid, "gang")

    def _holds_became_stale(self, pod_uid: str) -> None:
        """The holds that keep a rejected pod out may be stale by now, and are revoked when the pod is filtered again."""
        self.waker.reconsider(pod_uid, "holds")


def _report_dropped_specs(event: ClaimSpecsDropped) -> None:
    _LOG.warning(
        "the claims of a namespace take more than is kept; further specs are read again when needed",
        namespace=event.namespace,
    )


def _outcome_is_known(bind: asyncio.Task[None]) -> None:
    if not bind.cancelled():
        bind.exception()
