"""How many more copies of a pod fit, why no further one does, and what is left that none can use."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.rules.counter_sets import CounterTable
from dra_extender.allocator.rules.held_devices import held_consumption
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.devices import NO_NODE
from dra_extender.inspection.what_if.changes import ChangeError, PodKey
from dra_extender.inspection.what_if.copied_cluster import generate_for
from dra_extender.inspection.what_if.report import Fill, NodeFill, OutcomeKind, Stranded, StrandedCounter
from dra_extender.inspection.what_if.trial import Trial, counted
from dra_extender.inspection.why.nearest import requested_options
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.pod import Pod, read_pod
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

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
    ledger, refusals = trial.view.ledger, trial.refusals(pod)
    if refusals.demand is None:
        return (), True
    free, complete = _free_devices(trial, refusals.demand, sorted(refusals.texts))
    counter_sets, counters_left = cache(partial(_counter_sets, ledger)), cache(partial(_counters_left, ledger))
    devices: defaultdict[_Place, set[str]] = defaultdict(set)
    counters: defaultdict[_Place, dict[tuple[str, ...], StrandedCounter]] = defaultdict(dict)
    for node, device_id, code in free:
        pool_id = device_id[:2]
        reaching = ledger.slices.nodes_of(pool_id)
        where = node if reaching is not None and len(reaching) == 1 else NO_NODE
        if code is None:
            place = _Place(where, refusals.codes[node], f"a copy does not fit: {refusals.texts[node]}")
        else:
            place = _Place(where, code.name, code.value)
        sets = counter_sets(pool_id).get(device_id[2], frozenset())
        if not sets or code is None:
            devices[place].add("/".join(device_id))
        for counter in counters_left(pool_id) if sets else ():
            if counter.counter_set in sets:
                counters[place][*pool_id, counter.counter_set, counter.counter] = counter
    parts = (
        Stranded(
            node=place.node,
            code=place.code,
            text=place.text,
            devices=tuple(sorted(devices.get(place, ()))),
            counters=tuple(counter for _, counter in sorted(counters.get(place, {}).items())),
        )
        for place in sorted(devices.keys() | counters.keys())
    )
    return tuple(parts), complete


def _free_devices(
    trial: Trial, demand: Demand, nodes: Iterable[str]
) -> tuple[Sequence[tuple[str, DeviceId, Code | None]], bool]:
    """Return (node, device, what keeps it away) of the free devices that the pod means, each once.

    Also return whether the budget for expressions sufficed for all nodes.
    """
    view, budget = trial.view, trial.view.budget()
    requests = [(claim, option.name) for claim, option in requested_options(demand)]
    seen: set[DeviceId] = set()
    free: list[tuple[str, DeviceId, Code | None]] = []
    for name in nodes:
        if budget():
            return free, False
        node = view.ledger.nodes.get(name)
        if node is None:
            continue
        of_node = [
            (name, diagnosis.device_id, diagnosis.code)
            for request_key in requests
            for diagnosis in view.extender.allocator.diagnose_devices(
                demand, node, request_key, budget, explains_selectors=False
            )
            if diagnosis.device_id not in seen and diagnosis.code not in _NOT_MEANT
        ]
        seen.update(device_id for _, device_id, _ in of_node)
        free += of_node
    return free, True


def _counter_sets(ledger: Ledger, pool_id: PoolId) -> Mapping[str, frozenset[str]]:
    """Return the counter sets from which each device of a pool draws."""
    return {
        device.name: frozenset(consumption.counter_set for consumption in device.consumes_counters)
        for published in ledger.slices.of_pool(pool_id)
        for device in published.devices
    }


def _counters_left(ledger: Ledger, pool_id: PoolId) -> Sequence[StrandedCounter]:
    pool = published_pool(pool_id, ledger.slices.of_pool(pool_id))
    left = CounterTable(pool.totals, held_consumption(pool.published, ledger.claims.usage.pool(pool_id))).remaining
    return [
        StrandedCounter(counter_set=name, counter=counter, left=amount, total=pool.totals[name][counter])
        for (name, counter), amount in sorted(left.items())
        if amount > 0
    ]


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
