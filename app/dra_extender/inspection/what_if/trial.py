"""Where the pods that wait would land: the service's filter, score and bind, one pod after the other, over a copy."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.rejection import Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import held_devices
from dra_extender.inspection.pod_facts import read_pod_facts
from dra_extender.inspection.what_if.copied_cluster import ASSUMED, CopiedCluster, is_made
from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome, ReasonCount
from dra_extender.inspection.what_if.unjudged import Unjudged
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod, read_pod
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds, read_pod_needs
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options, Weights
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

_MOST_KINDS: Final = 64
"""Pods with different needs whose candidates are kept."""


class Candidates(NamedTuple):
    """Nodes by name that a pod may go to, and the words of kube-scheduler's filters for the others."""

    nodes: Sequence[str]
    refused: Mapping[str, str]


class _Kind(NamedTuple):
    needs: PodNeeds
    refused: dict[str, str]


class CandidateNodes:
    """Candidates by what a pod needs; when a pod takes a node, that node alone is judged anew.

    Where nodes or pods could not be read, every node is a candidate.
    """

    def __init__(self, view: ClusterView) -> None:
        self._names = sorted(view.ledger.nodes)
        self._fit: NodeFit | None = view.node_fit
        self._kinds: LruCache[bytes, _Kind] = LruCache(_MOST_KINDS)

    @property
    def is_known(self) -> bool:
        return self._fit is not None

    def for_pod(self, pod: Pod) -> Candidates:
        needs = None if self._fit is None else self._fit.needs(pod.key)
        if needs is None:
            return Candidates(self._names, {})
        anonymous = msgspec.structs.replace(needs, key="", node="")
        kind = self._kinds.use(key := msgspec.json.encode(anonymous))
        if kind is None:
            kind = self._kinds[key] = _Kind(anonymous, {})
            for name in self._names:
                self._judge(kind, name)
        refused = kind.refused
        names = self._names if not refused else [name for name in self._names if name not in refused]
        return Candidates(names, refused)

    def add(self, data: bytes) -> None:
        """Count a pod that is there or has a node now (API JSON)."""
        if self._fit is None:
            return
        with suppress(ModelError):
            needs = read_pod_needs(data)
            self._fit.add(needs)
            if needs.node:
                for kind in self._kinds.values():
                    self._judge(kind, needs.node)

    def move(self, pod: Pod, node: str) -> None:
        """Count the pod on this node; with an empty name, take it off the node that it has."""
        needs = None if self._fit is None else self._fit.needs(pod.key)
        if self._fit is not None and needs is not None and needs.node != node:
            self._fit.add(msgspec.structs.replace(needs, node=node))
            for kind in self._kinds.values():
                self._judge(kind, node or needs.node)

    def _judge(self, kind: _Kind, node: str) -> None:
        found = () if self._fit is None else self._fit.refusals(kind.needs, node)
        if found:
            kind.refused[node] = found[0].said
        else:
            kind.refused.pop(node, None)


def _best_node(pod: Pod, result: FilterResult, weights: Weights) -> str:
    """Pick the nominated node if it fits, otherwise the node with the highest score; break ties by name.

    A member of a gang has the node of its plan.
    """
    if result.assigned_node is not None:
        return result.assigned_node
    if pod.nominated_node_name in result.fits:
        return pod.nominated_node_name
    terms = {name: fit.score_terms for name, fit in result.fits.items() if fit is not None and fit.score_terms}
    if not terms:
        return min(result.fits)
    scores = ratings({name: total(term) for name, term in terms.items()}, weights)
    return min(result.fits, key=lambda name: (-round(scores.get(name, 0.0)), name))


def counted(texts: Iterable[str]) -> tuple[ReasonCount, ...]:
    """Return reasons of nodes, most nodes first."""
    counts = sorted(Counter(texts).items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(ReasonCount(nodes=count, text=text) for text, count in counts)


def _waits(*reasons: ReasonCount) -> PodOutcome:
    return PodOutcome(kind=OutcomeKind.WAITS, reasons=reasons)


def _waits_for(text: str) -> PodOutcome:
    """Return the outcome of a pod that waits for one reason, whatever the node."""
    return _waits(ReasonCount(nodes=0, text=text))


def _device_names(records: Iterable[ClaimRecord]) -> tuple[str, ...]:
    return tuple(
        "/".join(result.device_id)
        for record in records
        if record.claim.status.allocation is not None
        for result in record.claim.status.allocation.devices.results
    )


NODE_FIT: Final = "NODE_FIT"
"""The code of nodes that kube-scheduler's own filters refuse."""
MOST_PODS: Final = 5_000
"""Waiting pods that are placed; those after them in the queue are said to be left out."""
NAMESPACE_SECONDS: Final = 60.0
"""Time after which no further pods of a namespace are placed in one trial."""
_BIND_SECONDS: Final = 60.0
"""A bind of a trial has nothing to wait for; one that waits all the same ends then."""
_ALL_NODES: Final = 2**31


class WaitingPod(NamedTuple):
    """A pod that waits for a node.  The order is that of kube-scheduler's queue: priority, then age, then key.

    `gates`: its scheduling gates, which keep it out of the queue.
    """

    order: tuple[int, float, str]
    pod: Pod
    gates: tuple[str, ...]

    @property
    def gates_text(self) -> str:
        return f"scheduling gates: {', '.join(self.gates)}"


def _not_tried() -> PodOutcome:
    return _waits_for(f"not tried: {MOST_PODS} pods are before it in the queue")


class Refusals(NamedTuple):
    """What a pod asks for (None: nothing, or it cannot be prepared); a sentence and a code for each node that refuses it."""

    demand: Demand | None
    texts: Mapping[str, str]
    codes: Mapping[str, str]


class Trial:
    """A cluster in which the pods that wait are placed; what is placed stays placed for the next questions.

    `held` is what a running extender holds at the beginning.
    """

    def __init__(self, copy: CopiedCluster, options: Options | None = None) -> None:
        self.copy = copy
        copy.report_conditions()
        # Nobody else waits for the answer: all nodes count, and a search may take its time.  Limits that are counted hold.
        unhurried = replace(
            options or Options(),
            offered_nodes=_ALL_NODES,
            filter_budget_seconds=math.inf,
            search_burst_seconds=math.inf,
        )
        self.view = ClusterView(copy.objects(), options=unhurried, cluster=copy.cluster)
        self.held = held_devices(self.view.ledger, self.view.held)
        self._fit = CandidateNodes(self.view)
        self._unjudged = Unjudged(self.view)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def waiting(self) -> list[WaitingPod]:
        """Return the pods that wait for a node, in the order in which kube-scheduler tries them."""
        found = []
        for key, data in self.copy.store.keyed(StoredKind.POD).items():
            pod = self.view.pod(key.namespace, key.name)
            if pod is not None and not (pod.node_name or pod.finished or pod.deleting):
                facts = read_pod_facts(data)
                order = (-pod.priority, facts.created or 0.0, pod.key)
                found.append(WaitingPod(order, pod, facts.gates))
        return sorted(found)

    async def place_all(self) -> dict[str, PodOutcome]:
        """Place the pods that wait until nothing more fits; where each stands then, by UID.

        Pods that ask for no devices are left out.  The members of a gang are placed together: at least `minCount` of them, or none.
        """
        queue = [each for each in self.waiting() if each.pod.needs_devices or self._needed(each.pod) is not None]
        outcomes = {
            waiting_pod.pod.uid: _waits_for(waiting_pod.gates_text) for waiting_pod in queue if waiting_pod.gates
        }
        pending = [waiting_pod.pod for waiting_pod in queue if not waiting_pod.gates]
        for left_out in pending[MOST_PODS:]:
            outcomes[left_out.uid] = _not_tried()
        pending = pending[:MOST_PODS]
        moved = True
        while pending and moved:
            found: dict[str, PodOutcome] = {}
            held = len(self.view.ledger.holds)
            for unit in self._units(pending):
                found.update(await self._place_in_time(unit, outcomes))
            outcomes.update(found)
            # A pod that lands, or fits nowhere, gives up what the extender holds for it: others may fit then.
            moved = len(self.view.ledger.holds) < held or any(each.kind is OutcomeKind.LANDS for each in found.values())
            pending = [pod for pod in pending if found[pod.uid].kind is not OutcomeKind.LANDS]
        return outcomes

    async def place_others(self) -> dict[str, PodOutcome]:
        """Place the pods that wait and ask for no devices, each on the allowed node with the fewest pods; outcomes by UID."""
        pods = Counter(pod.node_name for pod in self.view.ledger.pods.all() if not pod.finished)
        outcomes: dict[str, PodOutcome] = {}
        for each in self.waiting():
            pod = each.pod
            if pod.needs_devices or self._needed(pod) is not None:
                continue
            if each.gates or len(outcomes) >= MOST_PODS:
                outcomes[pod.uid] = _waits_for(each.gates_text) if each.gates else _not_tried()
                continue
            candidates = self._fit.for_pod(pod)
            node = min(candidates.nodes, key=lambda name: (pods[name], name), default="")
            pods[node] += 1
            outcomes[pod.uid] = (
                await self._bind(pod, node, asyncio.Event()) if node else _waits(*counted(candidates.refused.values()))
            )
        return outcomes

    async def place(self, pod: Pod) -> PodOutcome:
        """Place one pod by itself; where it stands then."""
        return (await self._place((pod,)))[pod.uid]

    async def end(self) -> None:
        """Let what binds have begun come to its end."""
        await self.view.extender.binder.drain()

    def outcome_of(self, pod: Pod) -> PodOutcome:
        """Return where a pod stands that has a node, with its devices."""
        return PodOutcome(kind=OutcomeKind.RUNS, node=pod.node_name, devices=_device_names(self._records(pod)))

    def monotonic(self) -> float:
        """Return the clock of the trial, see Clock."""
        return self.copy.cluster.clock.monotonic()

    @property
    def judges_nodes(self) -> bool:
        """Return whether node fit is judged; it is not where nodes or pods could not be read."""
        return self._fit.is_known

    def refusals(self, pod: Pod) -> Refusals:
        """Return why the pod does not fit, on each node where it does not; nothing is bound."""
        result = self.view.evaluate(pod)
        own = self._fit.for_pod(pod).refused
        rejections = {node: result.reasons[text][1] for node, text in result.texts.items()}
        codes = {node: each.code.name for node, each in rejections.items()}
        texts = {node: each.reason for node, each in rejections.items()}
        return Refusals(result.demand, {**texts, **own}, {**codes, **dict.fromkeys(own, NODE_FIT)})

    def add_pod(self, pod: Json) -> Pod:
        """Count a pod of the copy among those that may be placed; return it as decisions read it.

        Raises:
            ModelError: it cannot be read.
        """
        data = msgspec.json.encode(pod)
        self._fit.add(data)
        return read_pod(data)

    def _units(self, pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
        """Return the queue with the members of each gang at the place of the first of them."""
        gangs: dict[tuple[str, str], list[Pod]] = {}
        order: list[Sequence[Pod]] = []
        for pod in pods:
            if pod.pod_group is None or self._needed(pod) is None:
                order.append((pod,))
                continue
            key = (pod.namespace, pod.pod_group)
            if key not in gangs:
                gangs[key] = []
                order.append(gangs[key])
            gangs[key].append(pod)
        return iter(order)

    def _needed(self, pod: Pod) -> int | None:
        """Return how many members of the pod's gang have to land together; None if it is no member of a gang."""
        group = None if pod.pod_group is None else self.view.ledger.pod_groups.get(pod.namespace, pod.pod_group)
        if group is None or group.min_count is None:
            return None
        members = self.view.ledger.pods.members(pod.namespace, group.metadata.name)
        bound = sum(bool(member.node_name) and not member.finished for member in members)
        return max(group.min_count - bound, 1)

    async def _place_in_time(self, unit: Sequence[Pod], before: Mapping[str, PodOutcome]) -> Mapping[str, PodOutcome]:
        """As `_place`, while the namespace of the unit has not taken its time; what tenants write may take long to search.

        Afterwards outcomes of an earlier round (`before`) stay.
        """
        namespace, clock = unit[0].namespace, self.copy.cluster.clock
        if self._seconds[namespace] > NAMESPACE_SECONDS:
            text = f"not tried: placing pods of namespace {namespace} has taken {NAMESPACE_SECONDS:g} s"
            return {pod.uid: before.get(pod.uid, _waits_for(text)) for pod in unit}
        start = clock.monotonic()
        try:
            return await self._place(unit)
        finally:
            self._seconds[namespace] += clock.monotonic() - start

    async def _place(self, unit: Sequence[Pod]) -> dict[str, PodOutcome]:
        """Bind the pods of a unit, if enough of them have a node."""
        needed = self._needed(unit[0])
        for pod in unit if needed is not None else ():
            self.view.extender.record_offer(pod, self._fit.for_pod(pod).nodes)
        chosen: list[tuple[Pod, str]] = []
        outcomes: dict[str, PodOutcome] = {}
        for pod in unit:
            choice = self._choose(pod)
            if isinstance(choice, str):
                chosen.append((pod, choice))
                # The next member of a gang finds the node as it is with this one.
                self._fit.move(pod, choice)
            else:
                outcomes[pod.uid] = choice
        if needed is not None and len(chosen) < needed:
            for pod in unit:
                self.view.extender.forget_plan(pod)
                self._fit.move(pod, "")
            held_back = _waits_for(f"its PodGroup needs {needed} more members with a node, {len(chosen)} fit")
            known = {uid: outcome for uid, outcome in outcomes.items() if outcome.reasons}
            return {pod.uid: known.get(pod.uid, held_back) for pod in unit}
        # The members of a gang wait for each other at the permit: one that fails ends the waiting of the others.
        disconnected = asyncio.Event()
        bound = await asyncio.gather(*(self._bind(pod, node, disconnected) for pod, node in chosen))
        return outcomes | dict(zip((pod.uid for pod, _ in chosen), bound, strict=True))

    def _choose(self, pod: Pod) -> str | PodOutcome:
        """Return the best node for the pod, or why it waits; a member of a gang has the node of its plan."""
        candidates = self._fit.for_pod(pod)
        try:
            result = self.view.extender.evaluate(pod, candidates.nodes)
        except RetryableError as problem:
            return _waits_for(str(problem))
        if result.fits:
            return _best_node(pod, result, self.view.options.weights)
        said = [result.reasons[text][1].reason for text in result.texts.values()]
        return _waits(*counted((*candidates.refused.values(), *said)))

    async def _bind(self, pod: Pod, node: str, disconnected: asyncio.Event) -> PodOutcome:
        key = Key(StoredKind.POD, pod.namespace, pod.name)
        data = self.copy.store.read(key)
        try:
            async with asyncio.timeout(_BIND_SECONDS):
                await self.view.extender.bind(pod.namespace, pod.name, pod.uid, node, disconnected)
        except (RetryableError, TimeoutError) as problem:
            disconnected.set()
            self._fit.move(pod, "")
            return _waits_for(f"bind: {str(problem) or 'it did not come to an end'}")
        self._fit.add(self.copy.store.read(key))
        records = self._records(self.view.ledger.pods.newest(pod))
        statuses = (device for record in records for device in record.claim.status.devices)
        assumed = {
            condition.type
            for device in statuses
            for condition in device.conditions or ()
            if condition.reason == ASSUMED
        }
        return PodOutcome(
            kind=OutcomeKind.LANDS,
            node=node,
            devices=_device_names(records),
            conditions=tuple(sorted(assumed)),
            unjudged=self._unjudged.reasons(pod, data, is_new=is_made(pod.uid)),
        )

    def _records(self, pod: Pod) -> Sequence[ClaimRecord]:
        """Return the claims of a pod that has its node, that for its extended resources included."""
        ledger = self.view.ledger
        found = find_claims(pod, ledger)
        named = () if isinstance(found, Rejection) else tuple(claim.record for claim in found)
        return (*named, *ledger.claims.for_extended_resources(pod.namespace, pod.uid))
