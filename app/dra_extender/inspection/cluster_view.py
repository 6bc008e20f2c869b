"""A cluster as decisions see it: its objects in a ledger, the extender's use cases over that, and changes for a trial."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Rejection
from dra_extender.cel.budget import CALL_COST, Budget
from dra_extender.inspection.holders import Holders, place_holds
from dra_extender.inspection.objects import (
    BUDGETS,
    EVENTS,
    KINDS,
    ClusterObjects,
    Origin,
    unread,
)
from dra_extender.inspection.pod_facts import (
    FAILED_SCHEDULING,
    SCHEDULING_GATED,
    DisruptionBudgets,
    ObjectEvents,
    PodFacts,
    read_pod_facts,
)
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.api_json import ModelError, Value, decode, decode_shallow
from dra_extender.model.device import PoolId
from dra_extender.model.fields import Gate
from dra_extender.model.metadata import IdentifiedObject, ObjectMeta, split_key, version_number
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.nodefit.node_fit import CLOSED, NodeFit, NodeRefusal, read_fit_node, read_node_fit
from dra_extender.nodefit.pod_needs import PodNeeds, read_pod_needs
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.readiness import ClaimReadiness, evaluate_conditions
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.hold_report import HoldReport
from dra_extender.scheduling.ports.cluster import NotFoundError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Key, StoredKind, key_of
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.telemetry.metrics import Metrics

_BESIDE_COUNTERS: Final = "v1.34."
_ALL_NODES: Final = 2**31
_OF_NODES: Final = frozenset({"nodes", "pods"})
_IDENTIFIED: Final = msgspec.json.Decoder(IdentifiedObject)
ANSWER_COST: Final = CALL_COST // 4
"""What one answer may spend on expressions of tenants, in cost units."""
SECONDS_EACH: Final = 30.0
"""As long as the searches for one pod take at most."""


class _NamedObject(Value, frozen=True):
    """An object of which nothing but the metadata is read."""

    metadata: ObjectMeta


_NAMED: Final = msgspec.json.Decoder(_NamedObject)

NodeRefusals = tuple[NodeRefusal, ...]
_MOST_KINDS: Final = 64
"""Pods with different needs for which judged nodes are kept."""


class PodFit:
    """How kube-scheduler's filters beside devices judge nodes for one pod, when the pods `ended` (`namespace/name`) are gone."""

    def __init__(
        self, fit: NodeFit, needs: PodNeeds, ended: Collection[str] = (), judged: dict[str, NodeRefusals] | None = None
    ) -> None:
        """`judged`: what is known of nodes from which no pod is gone, for pods that need the same; a node is judged once."""
        self.needs = needs
        self.ended = ended
        self.fit = fit
        self._judged = {} if judged is None else judged
        self._left = {pod.node for pod in map(fit.needs, ended) if pod is not None}

    def refusals(self, node: str) -> NodeRefusals:
        """Return why the node refuses the pod, in the order of the filters; empty if it does not."""
        if node in self._left:
            return self.fit.refusals(self.needs, node, self.ended)
        if node not in self._judged:
            self._judged[node] = self.fit.refusals(self.needs, node)
        return self._judged[node]

    def is_closed(self, node: str) -> bool:
        """Return whether the node is not ready, cordoned, tainted against the pod, or being deleted."""
        return any(refusal.filter in CLOSED for refusal in self.refusals(node))

    def after(self, ended: Iterable[str]) -> "PodFit":
        """Return the same for when these pods are gone, too."""
        return PodFit(self.fit, self.needs, (*self.ended, *ended), self._judged)

    def with_needs(self, needs: PodNeeds) -> "PodFit":
        """Return the same for a pod with other needs."""
        return PodFit(self.fit, needs, self.ended)


class UnreadableObject(NamedTuple):
    """An object that decisions leave out, and why."""

    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class ObjectChange(NamedTuple):
    """An object (API JSON) of a plural kind in the place of the one of that name; without `before` it is a new one."""

    kind: StoredKind
    before: dict[str, Any] | None
    after: dict[str, Any]


class InspectionClock(NamedTuple):
    """A wall clock that stands at the time when the objects were read.  Implements ports.Clock."""

    taken_at: float
    elapsed: Callable[[], float] = monotonic

    def now(self) -> float:
        """Return when the objects were read, seconds since the epoch."""
        return self.taken_at

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return self.elapsed()


class _Unread(Metrics):
    def before_render(self, refresh: Callable[[], None]) -> None:
        """Keep nothing of the view, because nobody renders these metrics."""


@cache
def _metrics() -> Metrics:
    """Return the metrics of all views: making them takes half as long as all else in a small view, and `why` makes many."""
    return _Unread()


class ClusterView:
    """The objects of a cluster, read once; each question is answered as the service would answer it with these objects.

    `unreadable` are objects that no decision can read.  `assumes_binding_timeout`: the default counts, because no running extender
    reported its own one.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        features: Features | None = None,
        options: Options | None = None,
        cluster: MemoryCluster | None = None,
    ) -> None:
        """Read the objects.

        Args:
            objects: What the cluster has.
            features: Feature gates that are assumed.
            options: How the use cases behave; by default as the service's, with all nodes offered that fit.
            cluster: What the use cases write to; by default one without objects.
        """
        self.origin = objects.origin
        self.features = features or Features()
        self.unreadable: tuple[UnreadableObject, ...] = ()
        self.ledger = Ledger()
        self.cluster = cluster or MemoryCluster(
            clock=InspectionClock(objects.origin.taken_at), served=served_fields(objects.origin)
        )
        # The service ends a search early when enough nodes fit; here all of them count.
        reported = None if objects.holds is None else objects.holds.binding_timeout_seconds
        self.assumes_binding_timeout = options is None and reported is None
        self.options = options or Options(offered_nodes=_ALL_NODES)
        if options is None and reported is not None:
            self.options = replace(self.options, binding_timeout_seconds=reported)
        self._clock = self.cluster.clock
        # All use cases, of which none is started: an answer is what the code of the service decides.
        self.extender = Extender(self.ledger, self.cluster, _metrics(), self.options, self.features)
        self._objects = objects
        self.unreadable = tuple(self._fill(objects))
        # The ledger takes over only newer versions, so what a trial writes is newer than all objects.
        versions = (version_number(record.claim.metadata.resource_version) for record in self.ledger.claims.records())
        self.cluster.store.skip_versions(max(versions, default=0))
        self.hold_report = objects.holds or HoldReport(format="", taken_at=objects.origin.taken_at)
        place_holds(self.ledger, self.hold_report)
        self._hold_count = len(self.ledger.holds)
        self._judged: LruCache[bytes, dict[str, NodeRefusals]] = LruCache(_MOST_KINDS)

    def use_policy(self, policy: PolicyOverlay) -> None:
        self.ledger.overlays_changed(self.ledger.overlays.use_policy(policy))
        self.extender.expect(policy.expected)

    @property
    def holders(self) -> Holders:
        until = {hold.claim_uid: hold.until for hold in self.hold_report.holds}
        return Holders(self.ledger, until, knows_pods=not unread(self.origin, {"pods"}))

    @property
    def now(self) -> float:
        """Return when the objects were read, seconds since the epoch."""
        return self.origin.taken_at

    def facts(self, namespace: str, name: str) -> PodFacts:
        """Return what only people read of a pod; without facts for one that cannot be read or is not there."""
        data = self.encoded("pods", name, namespace)
        if data is not None:
            with suppress(ModelError):
                return read_pod_facts(data)
        return PodFacts(key=(namespace, name))

    @cached_property
    def all_facts(self) -> Mapping[tuple[str, str], PodFacts]:
        """Return `facts` of all pods by (namespace, name)."""
        facts_by_key: dict[tuple[str, str], PodFacts] = {}
        for data in self._objects.of_kind("pods"):
            with suppress(ModelError):
                facts = read_pod_facts(data)
                facts_by_key[facts.key] = facts
        return facts_by_key

    def stored(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """Return the object of a plural kind as changes have left it, decoded; None if it is not there."""
        data = self.encoded(kind, name, namespace)
        return None if data is None else decode_shallow(kind, data)

    def encoded(self, kind: str, name: str, namespace: str = "") -> bytes | None:
        """Return the object as changes have left it (API JSON); None if it is not there, or its name cannot be read."""
        with suppress(NotFoundError):
            return self.cluster.store.read(Key(StoredKind(kind), namespace, name))
        # What no change has touched is not in the store, unless the view is over a copy.
        mark = name.encode()
        for data in self._objects.of_kind(kind):
            if mark in data:
                with suppress(ModelError):
                    metadata = decode(kind, _IDENTIFIED, data).metadata
                    if (metadata.namespace, metadata.name) == (namespace, name):
                        return data
        return None

    def names(self, kind: str, namespace: str) -> Sequence[str]:
        """Return the names of the objects of a plural kind in a namespace that people made, as far as they were read."""
        return [name for other, name in self._keys(kind) if other == namespace]

    def namespaces_of(self, kind: str, name: str) -> Sequence[str]:
        """Return the namespaces with an object of a plural kind of this name that people made, as far as they were read."""
        return [namespace for namespace, other in self._keys(kind) if other == name]

    def _keys(self, kind: str) -> Iterator[tuple[str, str]]:
        for data in self._objects.of_kind(kind):
            with suppress(ModelError):
                metadata = decode(kind, _NAMED, data).metadata
                if not metadata.owner_references:
                    yield metadata.namespace, metadata.name

    @cached_property
    def budgets(self) -> DisruptionBudgets:
        return DisruptionBudgets(self._objects.of_kind(BUDGETS))

    def may_be_evicted(self, pods: Iterable[str]) -> bool:
        """Return whether no PodDisruptionBudget that was read forbids to evict these pods (`namespace/name`) together."""
        if BUDGETS not in self._objects.by_kind:
            return True
        pod_facts = (self.all_facts.get(split_key(pod)) for pod in pods)
        return not self.budgets.forbidding(facts for facts in pod_facts if facts is not None)

    @cached_property
    def events(self) -> ObjectEvents:
        return ObjectEvents(self._objects.of_kind(EVENTS))

    @cached_property
    def acting_schedulers(self) -> frozenset[str]:
        """Return the schedulers that have placed a pod, reported why they have not, or have devices for one."""
        with_devices = {uid for hold in self.hold_report.holds for _, uid in hold.pods}
        with_devices |= {
            consumer.uid for record in self.ledger.claims.records() for consumer in record.claim.status.reserved_for
        }
        by_key = {(pod.namespace, pod.name): pod for pod in self.ledger.pods.all()}
        acted = (
            pod.scheduler_name
            for key, pod in by_key.items()
            if pod.node_name
            or pod.uid in with_devices
            or (key in self.all_facts and self.all_facts[key].reason not in ("", SCHEDULING_GATED))
            or any(event.reason == FAILED_SCHEDULING for event in self.events.about("Pod", *key, pod.uid))
        )
        return frozenset((*acted, *self.events.reporters(FAILED_SCHEDULING)))

    def unread_events(self, namespace: str) -> str:
        """Return why the Events of a namespace are not known; empty if they are."""
        missing = next((kind for kind in self.origin.missing if kind.kind == EVENTS), None)
        if missing is not None:
            return "" if missing.namespace == namespace else missing.reason
        return "" if EVENTS in self._objects.by_kind else f"{self.origin.source} has none"

    @cached_property
    def node_fit(self) -> NodeFit | None:
        """Return what judges nodes by what is beside devices; None if nodes, or pods of any namespace, could not be read."""
        objects = self._objects
        if unread(objects.origin, _OF_NODES) or not objects.by_kind.keys() >= _OF_NODES:
            return None
        served = self.ledger.backing if self.ledger.serves_extended_resources else ()
        return read_node_fit(objects.of_kind("nodes"), objects.of_kind("pods"), served)

    def pod_fit(self, pod: Pod, ended: Collection[str] = ()) -> PodFit | None:
        """Return what judges nodes for the pod by what is beside devices; None where that is not known."""
        fit = self.node_fit
        needs = None if fit is None else fit.needs(pod.key)
        if fit is None or needs is None:
            return None
        key = needs_key(needs)
        judged = self._judged.use(key)
        if judged is None:
            judged = self._judged[key] = {}
        return PodFit(fit, needs, ended, judged)

    def count_pod(self, needs: PodNeeds) -> None:
        """Count a pod on its node from now on, in the place of an earlier one of its name."""
        fit = self.node_fit
        if fit is not None:
            before = fit.needs(needs.key)
            fit.add(needs)
            self._judge_anew(needs.node, "" if before is None else before.node)

    def _judge_anew(self, *nodes: str) -> None:
        for judged in self._judged.values():
            for node in nodes:
                judged.pop(node, None)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self.ledger.pods.by_key(namespace, name)

    def pools_of(self, node: str) -> NodePools | None:
        """Return the pools of a node as searches see them; None if there is no such node, or they cannot be read."""
        known = self.ledger.nodes.get(node)
        return None if known is None else self.extender.allocator.pools_of(known)

    def published_pool(self, pool_id: PoolId) -> Pool:
        return published_pool(pool_id, self.ledger.slices.of_pool(pool_id))

    def claim(self, namespace: str, name: str) -> ClaimHead | None:
        record = self.ledger.claims.by_key(namespace, name)
        return None if record is None else record.claim

    def claims_of(self, pod: Pod) -> Sequence[FoundClaim]:
        """Return the claims of a pod; none if one of them cannot be had."""
        claims = find_claims(pod, self.ledger)
        return () if isinstance(claims, Rejection) else claims

    def readiness(self, claim: ClaimHead) -> ClaimReadiness:
        """Return what the binding conditions of a claim's devices say now."""
        timeout = self.options.binding_timeout_seconds
        return evaluate_conditions(claim, now=self.now, waiting_since=self.now, timeout=timeout)

    def evaluate(self, pod: Pod, nodes: Sequence[str] | None = None) -> FilterResult:
        """Evaluate these nodes, or all, for the pod as a change has left it; keep no plan of its gang.

        Without `nodes`, a member of a gang is planned on a node that it may use if there is a plan with one.
        """
        if nodes is None:
            usable = None if pod.pod_group is None else self.offer_gang(pod).get(pod.uid)
            if usable and (result := self.evaluate(pod, usable)).fits:
                return result
            nodes = tuple(self.ledger.nodes)
        result = self.extender.evaluate(self.pod(pod.namespace, pod.name) or pod, nodes, SECONDS_EACH)
        self.extender.forget_plan(pod)
        self.hold_again()
        return result

    def offer_gang(self, pod: Pod, ended: Collection[str] = ()) -> Mapping[str, Sequence[str]]:
        """Tell the extender which nodes each waiting member of the pod's gang may use, and return them by UID.

        `ended`: pods (`namespace/name`) that are gone by then.
        """
        offers, by_needs = dict[str, Sequence[str]](), dict[bytes, Sequence[str]]()
        for member in self.ledger.pods.members(pod.namespace, pod.pod_group or ""):
            fit = None if member.node_name else self.pod_fit(member, ended)
            if fit is None:
                continue
            key = needs_key(fit.needs)
            if key not in by_needs:
                by_needs[key] = [name for name in self.ledger.nodes if not fit.refusals(name)]
            offers[member.uid] = by_needs[key]
            self.extender.gangs.record_offer(member, by_needs[key])
        return offers

    def budget(self) -> Budget:
        return Budget(ANSWER_COST, clock=self._clock.monotonic)

    @property
    def monotonic(self) -> float:
        """Return seconds of a clock that only goes forward; the time of the objects stands still."""
        return self._clock.monotonic()

    def hold_again(self) -> None:
        """Hold what the extender holds; an evaluation releases what is held for its pod and gang."""
        if len(self.ledger.holds) < self._hold_count:
            place_holds(self.ledger, self.hold_report)

    @contextmanager
    def changed(self, changes: Sequence[ObjectChange]) -> Iterator[None]:
        """Let changes take effect for as long as a question is asked; afterwards the objects are as before."""
        store = self.cluster.store
        try:
            for change in changes:
                store.put_unchecked(change.kind, change.after)
                self._count_changed(change.kind, change.after)
            yield
        finally:
            for change in reversed(changes):
                if change.before is None:
                    store.remove_unchecked(key_of(change.kind, change.after))
                else:
                    store.put_unchecked(change.kind, change.before)
                    self._count_changed(change.kind, change.before)

    def _count_changed(self, kind: StoredKind, item: dict[str, Any]) -> None:
        """Let nodes be judged by what a changed pod needs, and as a changed node is."""
        if self.node_fit is None or kind not in (StoredKind.POD, StoredKind.NODE):
            return
        with suppress(ModelError):
            data = msgspec.json.encode(item)
            if kind is StoredKind.POD:
                self.count_pod(read_pod_needs(data))
            else:
                node = read_fit_node(data)
                self.node_fit.put_node(node)
                self._judge_anew(node.name)

    def _fill(self, objects: ClusterObjects) -> Iterator[UnreadableObject]:
        sinks = sinks_of(self.ledger)
        self.cluster.watch.deliver_at_once(sinks)
        for kind in KINDS:
            sink = sinks.get(kind)
            if sink is None:
                continue
            for data in objects.of_kind(kind):
                try:
                    sink.changed(data)
                except ModelError as problem:
                    yield UnreadableObject(kind, str(problem))
            if kind in objects.by_kind:
                sink.synced()
            else:
                sink.absent()


def needs_key(needs: PodNeeds) -> bytes:
    """Return what is equal for pods that need the same of any node."""
    return msgspec.json.encode(msgspec.structs.replace(needs, key="", node=""), order="deterministic")


def served_fields(origin: Origin) -> Served:
    """Return which fields the API server keeps that the objects come from; where that is not known, all of them."""
    return Served(
        off=frozenset() if origin.may_be_on(Gate.EXTENDED_RESOURCES) else frozenset({Gate.EXTENDED_RESOURCES}),
        frozen_groups=True,
        devices_beside_counters=origin.release.startswith(_BESIDE_COUNTERS),
    )
