"""Where the pods that wait would land: the service's filter, score and bind, one pod after the other, over a copy."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.state.reasons import Rejection, closeness
from dra_extender.inspection.cluster_view import ClusterView, needs_key
from dra_extender.inspection.holders import held_devices
from dra_extender.inspection.pod_facts import SCHEDULING_GATED, read_pod_facts
from dra_extender.inspection.what_if.changes import PodKey
from dra_extender.inspection.what_if.copied_cluster import (
    ASSUMED,
    CopiedCluster,
    generate_claims,
    generate_for,
    is_made,
)
from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome, ReasonCount
from dra_extender.inspection.why.names import existing_names
from dra_extender.inspection.why.reported import (
    JUDGED,
    absent_scheduler,
    creation_events,
    reported_reasons,
    scheduler_message,
    unjudged_filters,
)
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod, read_pod
from dra_extender.nodefit.pod_needs import read_pod_needs
from dra_extender.scheduling.claims.lookup import find_claims, gang_of
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.scoring import ratings
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of

NODE_FIT: Final = "NODE_FIT"
"""The code of nodes that kube-scheduler's own filters refuse."""
MOST_PODS: Final = 5_000
"""Waiting pods that are placed; those after them in the queue are said to be left out."""
NAMESPACE_SECONDS: Final = 60.0
"""Time after which no further pods of a namespace are placed in one trial."""
_BIND_SECONDS: Final = 60.0
"""A bind of a trial has nothing to wait for; one that waits all the same ends then."""
_ALL_NODES: Final = 2**31

Progress = Callable[[int, int], None]
"""Takes how many pods were placed, or fit nowhere, and how many there are."""


def counted(reasons: Counter[str]) -> tuple[ReasonCount, ...]:
    """Return reasons with the number of nodes, most nodes first."""
    counts = sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(ReasonCount(nodes=count, text=text) for text, count in counts)


def _reason_text(view: ClusterView, pod: Pod, rejection: Rejection) -> str:
    """Return the reason; of one about a claim also the details, because nobody can ask `why` about a pod that a change makes."""
    names = existing_names(view, pod, rejection)
    of_claim = bool(rejection.claim) and closeness(rejection.code) == 0
    return rejection.text + names if of_claim or names else rejection.reason


def _waits_for(text: str) -> PodOutcome:
    """Return the outcome of a pod that waits for one reason, whatever the node."""
    return PodOutcome(kind=OutcomeKind.WAITS, reasons=(ReasonCount(nodes=0, text=text),))


def _device_names(records: Iterable[ClaimRecord]) -> tuple[str, ...]:
    return tuple(
        "/".join(result.device_id)
        for record in records
        if record.claim.status.allocation is not None
        for result in record.claim.status.allocation.devices.results
    )


class Refusals(NamedTuple):
    """What a pod asks for (None: nothing, or it cannot be prepared); a sentence and a code for each node that refuses it."""

    demand: Demand | None
    texts: Mapping[str, str]
    codes: Mapping[str, str]


class Trial:
    """A cluster in which the pods that wait are placed; what is placed stays placed for the next questions.

    `held` is what a running extender holds at the beginning.
    """

    def __init__(
        self, copy: CopiedCluster, policy: PolicyOverlay | None = None, progress: Progress | None = None
    ) -> None:
        """Begin a trial under the policy, in which waiting pods have the claims that their templates make."""
        generate_claims(copy)
        copy.report_conditions()
        self.copy = copy
        self._progress = progress
        # Nobody else waits for the answer: all nodes count, and a search may take its time.  Limits that are counted hold.
        unhurried = Options(offered_nodes=_ALL_NODES, filter_budget_seconds=math.inf, search_burst_seconds=math.inf)
        self.view = ClusterView(copy.objects(), options=unhurried, cluster=copy.cluster)
        if policy is not None:
            self.view.use_policy(policy)
        self.view.extender.learn_expected()
        self.held = held_devices(self.view.ledger, self.view.hold_report)
        self._names = sorted(self.view.ledger.nodes)
        # Pods that the trial places are no trace of their scheduler.
        self._acting = self.view.acting_schedulers
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def open_nodes(self, pod: Pod) -> Sequence[str]:
        """Return the nodes to which kube-scheduler's own filters let the pod; all where nodes or pods could not be read."""
        fit = self.view.pod_fit(pod)
        return [name for name in self._names if fit is None or not fit.refusals(name)]

    def _refused(self, pod: Pod) -> Mapping[str, str]:
        """Return the words of the first of these filters for each other node."""
        fit = self.view.pod_fit(pod)
        nodes = () if fit is None else ((name, fit.refusals(name)) for name in self._names)
        return {name: refusals[0].description for name, refusals in nodes if refusals}

    def _count(self, data: bytes) -> None:
        """Count a pod that is there or has a node now (API JSON)."""
        with suppress(ModelError):
            self.view.count_pod(read_pod_needs(data))

    def _move(self, pod: Pod, node: str) -> None:
        """Count the pod on this node; with an empty name, take it off the node that it has."""
        fit = self.view.pod_fit(pod)
        if fit is not None and fit.needs.node != node:
            self.view.count_pod(msgspec.structs.replace(fit.needs, node=node))

    def waiting(self) -> list[tuple[Pod, tuple[str, ...]]]:
        """Return the pods that wait for a node, with the scheduling gates that keep them out of the queue.

        They are in the order of kube-scheduler's queue: priority, then age, then key.
        """
        waiting = []
        for key, data in self.copy.store.keyed(StoredKind.POD).items():
            pod = self.view.pod(key.namespace, key.name)
            if pod is not None and pod.waits_for_node:
                facts = read_pod_facts(data)
                order = (-pod.priority, facts.created or 0.0, pod.key)
                waiting.append((order, pod, facts.gates))
        return [(pod, gates) for _, pod, gates in sorted(waiting, key=lambda entry: entry[0])]

    async def place_waiting(self) -> dict[PodKey, PodOutcome]:
        """Place the pods that wait, those that ask for no devices last; return where each stands then, by key.

        Pods that ask for devices are tried until nothing more fits.  The members of a gang are placed together, at the place of the
        first of them: at least `minCount` of them, or none.
        """
        waiting = self.waiting()
        outcomes: dict[str, PodOutcome] = {}
        pending: list[Pod] = []
        plain: list[Pod] = []
        for pod, gates in waiting:
            queue = pending if pod.needs_devices or self.needed_members(pod) is not None else plain
            if gates:
                outcomes[pod.uid] = _waits_for(f"scheduling gates: {', '.join(gates)}")
            elif len(queue) >= MOST_PODS:
                outcomes[pod.uid] = _waits_for(f"not tried: {MOST_PODS} pods are before it in the queue")
            else:
                queue.append(pod)
        moved = True
        while pending and moved:
            of_round: dict[str, PodOutcome] = {}
            held = len(self.view.ledger.holds)
            for unit in self._units(pending):
                namespace, start = unit[0].namespace, self.view.monotonic
                if self._seconds[namespace] > NAMESPACE_SECONDS:
                    # What tenants write may take long to search.  Outcomes of an earlier round stay.
                    late = f"not tried: placing pods of namespace {namespace} has taken {NAMESPACE_SECONDS:g} s"
                    of_round |= {pod.uid: outcomes.get(pod.uid, _waits_for(late)) for pod in unit}
                else:
                    of_round |= await self._place(unit)
                    self._seconds[namespace] += self.view.monotonic - start
                if self._progress is not None:
                    self._progress(len(of_round), len(pending))
            outcomes.update(of_round)
            # A pod that lands, or fits nowhere, gives up what the extender holds for it: others may fit then.
            moved = len(self.view.ledger.holds) < held or any(
                outcome.kind is OutcomeKind.LANDS for outcome in of_round.values()
            )
            pending = [pod for pod in pending if of_round[pod.uid].kind is not OutcomeKind.LANDS]
        outcomes |= await self._place_plain(plain)
        await self.finish_binds()
        return {(pod.namespace, pod.name): outcomes[pod.uid] for pod, _ in waiting}

    def seconds_of(self, namespace: str) -> float:
        """Return how long the pods of a namespace have taken to place."""
        return self._seconds[namespace]

    def _units(self, pods: Sequence[Pod]) -> Collection[Sequence[Pod]]:
        """Return the pods that are placed together: the members of one gang, or one pod."""
        units = defaultdict[tuple[str, str], list[Pod]](list)
        for pod in pods:
            group = None if self.needed_members(pod) is None else pod.pod_group
            units[(pod.uid, "") if group is None else (pod.namespace, group)].append(pod)
        return units.values()

    async def _place_plain(self, pods: Sequence[Pod]) -> dict[str, PodOutcome]:
        """Place pods that ask for no devices, each on the allowed node with the fewest pods; return outcomes by UID."""
        counts = Counter(pod.node_name for pod in self.view.ledger.pods.all() if not pod.finished)
        outcomes: dict[str, PodOutcome] = {}
        for pod in pods:
            node = min(self.open_nodes(pod), key=lambda name: (counts[name], name), default="")
            if node:
                counts[node] += 1
                outcomes[pod.uid] = await self._bind(pod, node, asyncio.Event())
            else:
                reasons = counted(Counter(self._refused(pod).values()))
                outcomes[pod.uid] = PodOutcome(kind=OutcomeKind.WAITS, reasons=reasons)
        return outcomes

    async def place(self, pod: Pod) -> PodOutcome:
        """Place one pod by itself, and return where it stands then."""
        return (await self._place((pod,)))[pod.uid]

    async def _place(self, unit: Sequence[Pod]) -> dict[str, PodOutcome]:
        """Bind the pods of a unit, if enough of them have a node."""
        needed = self.needed_members(unit[0])
        for pod in unit if needed is not None else ():
            self.view.extender.gangs.record_offer(pod, self.open_nodes(pod))
        chosen: list[tuple[Pod, str]] = []
        outcomes: dict[str, PodOutcome] = {}
        for pod in unit:
            try:
                result = self.view.extender.evaluate(pod, self.open_nodes(pod))
            except RetryableError as problem:
                outcomes[pod.uid] = _waits_for(str(problem))
                continue
            if result.fits:
                chosen.append((pod, self._best_node(pod, result)))
                # The next member of a gang finds the node as it is with this one.
                self._move(*chosen[-1])
            else:
                reasons = Counter(self._refused(pod).values())
                for group in result.why():
                    reasons[_reason_text(self.view, pod, group.rejection)] += group.nodes
                outcomes[pod.uid] = PodOutcome(kind=OutcomeKind.WAITS, reasons=counted(reasons))
        if needed is not None and len(chosen) < needed:
            for pod in unit:
                self.view.extender.forget_plan(pod)
                self._move(pod, "")
            held_back = _waits_for(f"its PodGroup needs {needed} more members with a node, {len(chosen)} fit")
            known = {uid: outcome for uid, outcome in outcomes.items() if outcome.reasons}
            return {pod.uid: known.get(pod.uid, held_back) for pod in unit}
        # The members of a gang wait for each other at the permit: one that fails ends the waiting of the others.
        disconnected = asyncio.Event()
        bound = await asyncio.gather(*(self._bind(pod, node, disconnected) for pod, node in chosen))
        return outcomes | dict(zip((pod.uid for pod, _ in chosen), bound, strict=True))

    def _best_node(self, pod: Pod, result: FilterResult) -> str:
        """Pick the nominated node if it fits, otherwise the node with the highest score; break ties by name.

        A member of a gang has the node of its plan.
        """
        if result.assigned_node is not None:
            return result.assigned_node
        if pod.nominated_node_name in result.fits:
            return pod.nominated_node_name
        terms = {name: terms for name, terms in result.score_terms.items() if terms}
        scores = ratings(terms, self.view.options)
        return min(result.fits, key=lambda name: (-round(scores.get(name, 0.0)), name))

    async def _bind(self, pod: Pod, node: str, disconnected: asyncio.Event) -> PodOutcome:
        key = Key(StoredKind.POD, pod.namespace, pod.name)
        data = self.copy.store.read(key)
        try:
            async with asyncio.timeout(_BIND_SECONDS):
                await self.view.extender.bind(pod.namespace, pod.name, pod.uid, node, disconnected)
        except (RetryableError, TimeoutError) as problem:
            disconnected.set()
            self._move(pod, "")
            return _waits_for(f"bind: {str(problem) or 'it did not come to an end'}")
        self._count(self.copy.store.read(key))
        records = self._records(self.view.ledger.pods.newest(pod))
        assumed = {
            condition.type
            for record in records
            for device in record.claim.status.devices
            for condition in device.conditions or ()
            if condition.reason == ASSUMED
        }
        return PodOutcome(
            kind=OutcomeKind.LANDS,
            node=node,
            devices=_device_names(records),
            conditions=tuple(sorted(assumed)),
            unjudged=tuple(dict.fromkeys(self._unjudged(pod, data))),
        )

    def _unjudged(self, pod: Pod, data: bytes) -> Iterator[str]:
        """Yield what may keep a pod (API JSON `data`) that would get its devices, and that no trial judges, as half sentences."""
        view, facts = self.view, read_pod_facts(data)
        absent = absent_scheduler(view, pod, facts, self._acting)
        if absent:
            yield absent
        yield from (further.text for further in unjudged_filters(data))
        if is_made(pod.uid):
            yield "ResourceQuotas"
        if any(is_made(claim.record.claim.metadata.uid) for claim in view.claims_of(pod)):
            for event in creation_events(view, pod)[:1]:
                yield f"Event {event.reason}: {event.message}"
        if facts.reason != SCHEDULING_GATED:
            for reason in reported_reasons(scheduler_message(view, pod, facts)):
                if reason.kind not in JUDGED:
                    yield f"kube-scheduler reports: {reason.text}"

    def evict(self, pod: Json) -> None:
        """End a pod that has a node, and count the pod in its place among those that wait."""
        key = key_of(StoredKind.POD, pod)
        self._move(read_pod(msgspec.json.encode(pod)), "")
        self.copy.evict_pod(pod)
        self.add_pod(generate_for(self.copy, StoredKind.POD, self.copy.store.get(key)))

    def exchange_key(self, pod: Pod) -> bytes:
        """Return what is equal for pods that may take each other's place, whether or not they have their devices."""
        fit = self.view.pod_fit(pod)
        needs = None if fit is None else needs_key(fit.needs)
        found = find_claims(pod, self.view.ledger)
        claims: list[object] = [pod.key] if isinstance(found, Rejection) else []
        for claim in () if isinstance(found, Rejection) else found:
            key = Key(StoredKind.CLAIM, *claim.record.claim.metadata.key)
            shared = len(claim.record.claim.status.reserved_for) > 1
            stored = None if shared else self.copy.store.peek(key)
            claims.append(key if stored is None else stored["spec"])
        return msgspec.json.encode((needs, claims, pod.extended_requests), order="deterministic")

    def fitting_nodes(self, pod: Pod, nodes: Sequence[str] | None = None) -> Sequence[str]:
        """Return those of the nodes (by default of all) on which the pod by itself fits now, whatever its gang needs."""
        allowed = self.open_nodes(pod)
        among = allowed if nodes is None else [name for name in nodes if name in set(allowed)]
        result = self.view.extender.evaluate_without_gang(pod, among)
        self.view.hold_again()
        return sorted(result.fits)

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Take back afterwards what is ended and placed inside."""
        seconds = self._seconds.copy()
        with self.copy.store.restoring() as changes:
            yield
        for key in sorted({change.key for change in changes if change.key.kind is StoredKind.POD}):
            data = self.copy.store.read(key)
            self._move(read_pod(data), "")
            self._count(data)
        self._seconds = seconds
        self.view.hold_again()

    async def finish_binds(self) -> None:
        """Let what binds have begun come to its end."""
        await self.view.extender.binder.drain()

    def outcome_of(self, pod: Pod) -> PodOutcome:
        """Return where a pod stands that has a node, with its devices."""
        return PodOutcome(kind=OutcomeKind.RUNS, node=pod.node_name, devices=_device_names(self._records(pod)))

    @property
    def judges_nodes(self) -> bool:
        """Return whether node fit is judged; it is not where nodes or pods could not be read."""
        return self.view.node_fit is not None

    def refusals(self, pod: Pod) -> Refusals:
        """Return why the pod does not fit, on each node where it does not; nothing is bound."""
        result = self.view.evaluate(pod)
        own = self._refused(pod)
        rejections = {node: result.reasons[text][1] for node, text in result.texts.items()}
        codes = {node: rejection.code.name for node, rejection in rejections.items()}
        texts = {node: rejection.reason for node, rejection in rejections.items()}
        return Refusals(result.demand, {**texts, **own}, {**codes, **dict.fromkeys(own, NODE_FIT)})

    def add_pod(self, pod: Json) -> Pod:
        """Count a pod of the copy among those that may be placed; return it as decisions read it.

        Raises:
            ModelError: it cannot be read.
        """
        data = msgspec.json.encode(pod)
        self._count(data)
        return read_pod(data)

    def needed_members(self, pod: Pod) -> int | None:
        """Return how many members of the pod's gang have to land together; None if it is no member of a gang."""
        group = gang_of(pod, self.view.ledger)
        if group is None or group.min_count is None:
            return None
        members = self.view.ledger.pods.members(pod.namespace, group.metadata.name)
        bound = sum(bool(member.node_name) and not member.finished for member in members)
        return max(group.min_count - bound, 1)

    def _records(self, pod: Pod) -> Sequence[ClaimRecord]:
        """Return the claims of a pod that has its node, that for its extended resources included."""
        named = (claim.record for claim in self.view.claims_of(pod))
        return (*named, *self.view.ledger.claims.for_extended_resources(pod.namespace, pod.uid))
