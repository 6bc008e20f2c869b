"""How many more copies of a pod fit, why no further one does, and what is left that none can use."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.rules.counter_sets import CounterTable
from dra_extender.allocator.rules.held_devices import held_consumption
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.what_if.changes import ChangeError, PodKey
from dra_extender.inspection.what_if.copied_cluster import generate_for
from dra_extender.inspection.what_if.report import Fill, NodeFill, OutcomeKind, Stranded, StrandedCounter
from dra_extender.inspection.what_if.trial import Refusals, Trial, counted
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.pod import Pod, read_pod
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

SEVERAL_NODES: Final = ""
"""The node of devices that several nodes can reach."""
_NOT_MEANT: Final = frozenset({Code.NO_MATCH, Code.OTHER_NODE, Code.IN_USE, Code.SELECTOR_FAILED, Code.SEARCH_LIMIT})


class _Place(NamedTuple):
    """Devices of one node that share a reason."""

    node: str
    code: str
    text: str


def stranded(trial: Trial, pod: Pod) -> tuple[tuple[Stranded, ...], bool]:
    """Return the free devices that the pod means, and what is left of counters from which such devices draw, by node and reason.

    Also return whether all nodes were looked at; if not, the budget for expressions was spent.
    """
    refusals = trial.refusals(pod)
    if refusals.demand is None:
        return (), True
    search = _StrandedSearch(trial, refusals.demand, refusals)
    complete = search.visit_all()
    parts = (
        Stranded(
            node=place.node,
            code=place.code,
            text=place.text,
            devices=tuple(sorted("/".join(device) for device in search.devices.get(place, ()))),
            counters=tuple(counter for _, counter in sorted(search.counters.get(place, {}).items())),
        )
        for place in sorted(search.devices.keys() | search.counters.keys())
    )
    return tuple(parts), complete


class _StrandedSearch:
    """Goes through the devices that each node can reach, once for each device."""

    def __init__(self, trial: Trial, demand: Demand, refusals: Refusals) -> None:
        self._view = trial.view
        self._demand = demand
        self._refusals = refusals
        self._draws: dict[PoolId, Mapping[str, frozenset[str]]] = {}
        self._left: dict[PoolId, tuple[StrandedCounter, ...]] = {}
        self.devices: dict[_Place, set[DeviceId]] = defaultdict(set)
        self.counters: dict[_Place, dict[tuple[str, ...], StrandedCounter]] = defaultdict(dict)

    def visit_all(self) -> bool:
        """Look at all nodes until the budget for expressions is spent; return whether it was enough."""
        seen, budget, allocator = set[DeviceId](), self._view.budget(), self._view.extender.allocator
        requests = [
            (claim.label, option.name)
            for claim in self._demand.claims
            for request in claim.requests
            for option in request.options
        ]
        for name in sorted(self._refusals.texts):
            if budget():
                return False
            node, here = self._view.ledger.nodes.get(name), set[DeviceId]()
            if node is None:
                continue
            for request_key in requests:
                for diagnosis in allocator.diagnose_devices(
                    self._demand, node, request_key, budget, explains_selectors=False
                ):
                    if diagnosis.device_id not in seen and diagnosis.code not in _NOT_MEANT:
                        here.add(diagnosis.device_id)
                        self._note(name, diagnosis.device_id, diagnosis.code)
            seen |= here
        return True

    def _note(self, node: str, device_id: DeviceId, code: Code | None) -> None:
        ledger, pool_id = self._view.ledger, device_id[:2]
        reaching = ledger.slices.nodes_of(pool_id)
        where = node if reaching is not None and len(reaching) == 1 else SEVERAL_NODES
        if code is None:
            place = _Place(where, self._refusals.codes[node], f"a copy does not fit: {self._refusals.texts[node]}")
        else:
            place = _Place(where, code.name, code.value)
        if pool_id not in self._draws:
            self._draws[pool_id] = {
                device.name: frozenset(consumption.counter_set for consumption in device.consumes_counters)
                for published in ledger.slices.of_pool(pool_id)
                for device in published.devices
            }
        sets = self._draws[pool_id].get(device_id[2], ())
        if not sets or code is None:
            self.devices[place].add(device_id)
        if sets and pool_id not in self._left:
            pool = published_pool(pool_id, ledger.slices.of_pool(pool_id))
            members = held_consumption(pool.published, ledger.claims.usage.pool(pool_id))
            left = CounterTable(pool.totals, members).remaining
            self._left[pool_id] = tuple(
                StrandedCounter(counter_set=name, counter=counter, left=amount, total=pool.totals[name][counter])
                for (name, counter), amount in sorted(left.items())
                if amount > 0
            )
        for stranded in self._left[pool_id] if sets else ():
            if stranded.counter_set in sets:
                self.counters[place][*pool_id, stranded.counter_set, stranded.counter] = stranded


MOST_COPIES: Final = 1_000
"""Copies that are tried; the answer says when the count ends there."""
MOST_SECONDS: Final = 120.0
"""Time after which no further copy is tried."""
_OF_GROUPS: Final = ("schedulingGroup", "workloadRef")
_LEFT_OUT: Final = ("nodeName", "schedulingGates", *_OF_GROUPS)


class FillSubject(NamedTuple):
    """The pod that is copied (API JSON), what the answer calls it, and what is different about the copies."""

    pod: Json
    name: str
    notes: tuple[str, ...] = ()


def find_subject(trial: Trial, key: PodKey) -> FillSubject:
    """Return the pod of this name; else a pod with one claim from the ResourceClaimTemplate of this name.

    Raises:
        ChangeError: there is neither.
    """
    namespace, name = key
    pod = trial.copy.store.find(Key(StoredKind.POD, namespace, name))
    if pod is not None:
        try:
            read_pod(msgspec.json.encode(pod))
        except ModelError as problem:
            raise ChangeError(f"--fill: pod {namespace}/{name} cannot be read: {problem}") from problem
        grouped = any((pod.get("spec") or {}).get(field) for field in _OF_GROUPS)
        notes = [f"copies of {namespace}/{name} are no members of its PodGroup"] if grouped else []
        entries = (pod.get("spec") or {}).get("resourceClaims") or ()
        shared = ", ".join(sorted(entry["resourceClaimName"] for entry in entries if entry.get("resourceClaimName")))
        if shared:
            notes.append(f"all copies of {namespace}/{name} share what it has by name: {shared}")
        return FillSubject(pod, f"pod {namespace}/{name}", tuple(notes))
    if trial.copy.store.find(Key(StoredKind.TEMPLATE, namespace, name)) is None:
        neither = f"{trial.copy.origin.source} has neither"
        there = trial.copy.meant(StoredKind.POD, key) or trial.copy.meant(StoredKind.TEMPLATE, key)
        raise ChangeError(f"--fill: expected a pod or a ResourceClaimTemplate {namespace}/{name}; {neither}{there}")
    entry = {"name": "claim", "resourceClaimTemplateName": name}
    container: dict[str, Any] = {"name": "main", "resources": {"claims": [{"name": "claim"}]}}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "resourceClaims": [entry]},
    }
    return FillSubject(made, f"a pod with a claim from template {namespace}/{name}")


async def fill(trial: Trial, subject: FillSubject, most: int = MOST_COPIES) -> Fill:
    """Place copies, each with its own claims from templates, until one does not fit, `most` have a node, or the time is up.

    Claims that the pod has by name are shared by all copies.
    """
    nodes: Counter[str] = Counter()
    unjudged: tuple[str, ...] = ()
    end = trial.view.monotonic + MOST_SECONDS
    # Nothing is stranded, and nothing keeps a copy away, until one does not fit.
    result = Fill(subject=subject.name, copies=0, bounded=True)
    for number in range(1, most + 1):
        pod = _copy(trial, subject, number)
        outcome = await trial.place(pod)
        if outcome.kind is not OutcomeKind.LANDS:
            parts, complete = stranded(trial, pod)
            reasons = counted(Counter(trial.refusals(pod).texts.values())) or outcome.reasons
            result = msgspec.structs.replace(
                result, bounded=False, reasons=reasons, stranded=parts, stranded_in_part=not complete
            )
            break
        nodes[outcome.node] += 1
        unjudged = outcome.unjudged
        if trial.view.monotonic > end:
            break
    by_node = tuple(NodeFill(node=node, copies=copies) for node, copies in sorted(nodes.items()))
    return msgspec.structs.replace(result, copies=nodes.total(), nodes=by_node, unjudged=unjudged)


def _copy(trial: Trial, subject: FillSubject, number: int) -> Pod:
    """Return the copy of this number, which the ledger knows with its claims."""
    given = subject.pod["metadata"]
    name = f"{given['name']}-fill-{number}"
    while trial.copy.store.find(Key(StoredKind.POD, given["namespace"], name)) is not None:
        name += "-copy"
    metadata = {
        "name": name,
        "namespace": given["namespace"],
        "labels": given.get("labels") or {},
        "uid": f"what-if-fill-{number}",
        "creationTimestamp": trial.copy.created,
    }
    spec = {field: value for field, value in subject.pod["spec"].items() if field not in _LEFT_OUT}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    return trial.add_pod(generate_for(trial.copy, StoredKind.POD, trial.copy.put(StoredKind.POD, pod)))
