"""What stands in the way beside the reason that a search names: a sentence each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from dra_extender.allocator.demand.constraints import Constraint
from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.allocator.explain.device_diagnosis import DeviceDiagnosis
from dra_extender.allocator.explain.device_messages import taint_text, toleration_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.pools.pools import is_relevant
from dra_extender.allocator.rules.capacity import published_amounts
from dra_extender.allocator.rules.eligibility import briefly_tolerated, tolerates, untolerated_taints
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection, closeness
from dra_extender.cel.explain.values import quantity_text, shortened
from dra_extender.inspection.audit.published import newest_generations
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import holder_text
from dra_extender.inspection.near_names import is_slip, names_there
from dra_extender.inspection.why.bound import eviction_text
from dra_extender.inspection.why.nearest import NearestDevices, TypedValue
from dra_extender.inspection.why.report import EXAMPLES, NearestDevice
from dra_extender.inspection.why.request_edits import ReasonFacts
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import ModelError, listed
from dra_extender.model.device import Device, DeviceId, DeviceTaint, PoolId
from dra_extender.model.metadata import split_key
from dra_extender.model.node import Node
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.pod_claims import why_unusable_on

_LONGEST: Final = 80


def unreached_pools(view: ClusterView, option: SearchableRequest) -> Iterator[str]:
    """Yield a sentence about each pool with devices that a request means, and that no node can use; the first few."""
    ledger, pools = view.ledger, dict[PoolId, list[ResourceSlice]]()
    for published in newest_generations(tuple(ledger.slices.by_name.values())):
        if published.devices:
            pools.setdefault(published.pool_id, []).append(published)
    sentences: list[str] = []
    for (driver, name), current in sorted(pools.items()):
        is_reached = any(_reaches_a_node(published, ledger) for published in current)
        if not is_reached and may_serve(Code.OTHER_NODE, current, option, view.budget()):
            where = dict.fromkeys(text for published in current for text in _wheres(published))
            sentences.append(f"pool {driver}/{name} reaches no node: {listed(list(where), 1)}")
    yield from sentences[:EXAMPLES]
    if len(sentences) > EXAMPLES:
        yield f"{len(sentences) - EXAMPLES} more pools reach no node"


def _reaches_a_node(published: ResourceSlice, ledger: Ledger) -> bool:
    if published.node_name:
        return published.node_name in ledger.nodes
    try:
        return any(is_relevant(published, node, partitionable=True) for node in ledger.nodes.values())
    except ModelError:
        return True


def _wheres(published: ResourceSlice) -> Iterator[str]:
    yield from _where(published)
    for device in published.devices if published.per_device_node_selection else ():
        yield from _where(device)


def _where(restricted: ResourceSlice | Device) -> Iterator[str]:
    """Yield where the slice or device may be used, if it says so."""
    if restricted.node_name:
        yield f"node {restricted.node_name} does not exist"
    elif restricted.node_selector is not None:
        yield _unmatched(restricted.node_selector)


def _unmatched(selector: NodeSelector) -> str:
    terms = [
        " and ".join(
            f"{requirement.key} {requirement.operator}"
            + (f" ({', '.join(requirement.values)})" if requirement.values else "")
            for requirement in (*term.match_expressions, *term.match_fields)
        )
        for term in selector.node_selector_terms
    ]
    return shortened(f"no node matches {' or '.join(terms)}", _LONGEST)


def _kept_by(finalizers: Sequence[str]) -> str:
    return f"kept by {'finalizer' if len(finalizers) == 1 else 'finalizers'} {listed(finalizers)}"


_OF_WHOLE_SETS: Final = frozenset({Code.COUNTERS, Code.GROUPS})
_OF_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})


class FurtherReasons:
    """Finds for one pod what else stands in the way beside the reason that a search names."""

    def __init__(self, view: ClusterView, pod: Pod, nearest: NearestDevices) -> None:
        self._view = view
        self._pod = pod
        self._nearest = nearest

    def sentences(self, facts: ReasonFacts, example: str) -> Iterator[str]:
        """Yield what else stands in the way, such as what the search on the example node says of other devices of the request."""
        node, rejection, option = self._view.ledger.nodes.get(example), facts.rejection, facts.option
        yield from self._of_claim(facts)
        if facts.demand is None or node is None or option is None:
            return
        if rejection.code is Code.SELECTOR_FAILED:
            yield from self._not_found(rejection, node, option)
        if facts.candidates:
            yield from self._behind_selectors(facts, facts.demand, option)
        if not facts.diagnoses:
            if facts.candidates or rejection.code in _OF_POOLS:
                yield from self._beside_devices(facts.nodes)
            return
        nearest, values = facts.reason.nearest, facts.reason.constraint
        if values is not None and {text for text, _ in values.values} == {""}:
            attribute, attributes = values.constraint.rpartition(" ")[2], self._nearest.attributes(facts.diagnoses)
            if attribute not in attributes:
                yield f"none of them has {attribute}{names_there(attribute, attributes)}"
        match rejection.code:
            case Code.CONSTRAINT:
                yield from self._held_in_common(facts, facts.demand, node)
            case Code.TAINTED if nearest is not None:
                yield from self._of_taints(facts, nearest, option.tolerations)
            case Code.CAPACITY if nearest is not None:
                yield from self._of_amounts(nearest, option)
            case Code.COUNTERS if nearest is not None:
                yield from self._of_counters(facts, nearest)
        if nearest is not None:
            yield from self._kept_holders(nearest)
            yield from self._beside_code(rejection.code, nearest.device_id, facts.demand, option)
        yield from self._of_other_devices(facts, facts.demand, node)
        if option.count == ALL:
            yield from _in_the_way_of_all(facts, node)
        yield from self._beside_devices(facts.nodes)

    def _of_claim(self, facts: ReasonFacts) -> Iterator[str]:
        """Yield what else is known where a reason is about a claim, whatever devices the nodes have."""
        rejection = facts.rejection
        match rejection.code:
            case Code.CLAIM_FULLY_RESERVED:
                yield from self._beside_devices(self._nodes_of(rejection.claim))
                return
            case Code.CLAIM_ON_OTHER_NODE:
                yield from self._of_allocation(rejection.claim)
                return
            case Code.CLAIM_DELETING:
                namespace, name = split_key(rejection.detail)
                stored = self._view.stored("resourceclaims", name, namespace) or {}
                finalizers = stored.get("metadata", {}).get("finalizers") or ()
                users = [consumer.get("name", "") for consumer in stored.get("status", {}).get("reservedFor") or ()]
                if finalizers:
                    used = f"; it is reserved for {listed(users)}" if users else ""
                    yield f"{_kept_by(finalizers)}{used}"
        if facts.demand is None and closeness(rejection.code) == 0:
            yield from self._beside_devices(facts.nodes)

    def _claims(self, label: str) -> Sequence[FoundClaim]:
        return [claim for claim in self._view.claims_of(self._pod) if claim.label == label]

    def _nodes_of(self, label: str) -> Sequence[str]:
        """Return the nodes on which the allocation of a claim can be used."""
        ledger = self._view.ledger
        nodes = ledger.nodes.values()
        return [
            node.name for claim in self._claims(label) for node in nodes if why_unusable_on(node, claim, ledger) is None
        ]

    def _of_allocation(self, label: str) -> Iterator[str]:
        """Yield the nodes for which a claim is allocated."""
        nodes = self._nodes_of(label)
        if nodes:
            yield f"it is allocated for {listed(nodes)}"
            return
        for claim in self._claims(label):
            allocation = claim.record.claim.status.allocation
            if allocation is not None and allocation.node_selector is not None:
                yield _unmatched(allocation.node_selector)

    def _kept_holders(self, nearest: NearestDevice) -> Iterator[str]:
        """Yield the holders of a device that are being deleted and stay until others remove their finalizers."""
        for holder in dict.fromkeys(share.holder for share in nearest.holders if share.holder.leaving):
            kinds = (("pods", holder.consumers), ("resourceclaims", () if holder.consumers else (holder.claim,)))
            for kind, name in ((kind, name) for kind, names in kinds for name in names):
                namespace, own_name = split_key(name)
                metadata = (self._view.stored(kind, own_name, namespace) or {}).get("metadata", {})
                finalizers = [text for text in metadata.get("finalizers") or () if text != FINALIZER]
                if finalizers and metadata.get("deletionTimestamp"):
                    yield f"{'pod' if kind == 'pods' else 'claim'} {name} is {_kept_by(finalizers)}"

    def _of_taints(
        self, facts: ReasonFacts, nearest: NearestDevice, tolerations: Sequence[DeviceToleration]
    ) -> Iterator[str]:
        """Yield who sets the taints that keep the device away, what nearly tolerates them, and what stands behind them."""
        device = self._nearest.published_nearest(nearest)
        taints = () if device is None else tuple(untolerated_taints(device.taints, tolerations))
        fit = self._view.pod_fit(self._pod)
        own = [] if fit is None else [toleration.of_device() for toleration in fit.needs.tolerations]
        for taint in islice(taints, EXAMPLES):
            yield from self._setting(taint, nearest.device_id)
            near = (
                toleration
                for toleration in tolerations
                if toleration.key == taint.key or is_slip(toleration.key or "", taint.key)
            )
            for toleration in islice(near, EXAMPLES):
                yield f"the request tolerates {toleration_text(toleration)} instead"
            if any(tolerates(toleration, taint) for toleration in own):
                yield f"the pod tolerates {taint_text(taint)}, which counts for nodes only; the request would have to"
        on_node = (diagnosis for diagnosis in facts.diagnoses if diagnosis.node.name == nearest.node)
        devices = [device for diagnosis in on_node for device in diagnosis.devices]
        further = (device.also for device in devices if device.device_id == nearest.device_id)
        for text in islice(filter(None, further), 1):
            code = next((code for code in Code if text.startswith(f"{code.value}: ")), Code.TAINTED)
            shares = self._nearest.beside_picks(nearest.device_id, Rejection(code=code, detail=text))
            holders = [holder_text(share.holder, self._view.now) for share in shares]
            yield f"also {text}{f', held by {listed(holders)}' if holders else ''}"
        if facts.option is not None and facts.option.count > 1:
            # One more device is needed: what keeps others away counts too, where it is something else.
            others = {device.taints: device.detail for device in devices if device.code is Code.TAINTED}
            others.pop(taints, None)
            yield from (f"also {detail}" for detail in islice(others.values(), EXAMPLES))

    def _setting(self, taint: DeviceTaint, device_id: DeviceId) -> Iterator[str]:
        """Yield which DeviceTaintRules set a taint of a device, if any do."""
        setting = [
            name
            for name, rule in sorted(self._view.ledger.overlays.rules.items())
            if rule.spec.taint == taint and rule.selector is not None and rule.selector.selects(device_id)
        ]
        if setting:
            yield f"{taint_text(taint)} is set by DeviceTaintRule {listed(setting)}"

    def _beside_code(
        self, code: Code | None, device_id: DeviceId, demand: Demand, option: SearchableRequest
    ) -> Iterator[str]:
        """Yield the taints that keep a device away for which the code says something else, and those that evict the pod later."""
        device = self._nearest.published(device_id)
        if device is None or not demand.features.device_taints:
            return
        taints = [] if code is Code.TAINTED else list(untolerated_taints(device.taints, option.tolerations))
        if taints:
            yield f"also {device.name} has taint {listed([*map(taint_text, taints)])}"
        for taint in taints[:EXAMPLES]:
            yield from self._setting(taint, device_id)
        for taint, seconds in briefly_tolerated(device.taints, option.tolerations):
            yield eviction_text("also kube-controller-manager would evict the pod", device_id, taint, seconds)

    def _behind_selectors(self, facts: ReasonFacts, demand: Demand, option: SearchableRequest) -> Iterator[str]:
        """Yield what would keep the nearest device away if the selectors meant it."""
        miss = facts.candidates[0]
        diagnosis = self._nearest.behind_selectors(demand, facts.place, miss)
        if diagnosis is None:
            return
        if diagnosis.code is Code.IN_USE:
            holders = [holder_text(share.holder, self._view.now) for share in self._nearest.in_the_way(diagnosis)]
            yield f"also in use{f', held by {listed(holders)}' if holders else ''}"
        elif diagnosis.code is not None and diagnosis.detail:
            yield from (f"also {text}" for text in (diagnosis.detail, diagnosis.also) if text)
        shown = diagnosis.code is Code.IN_USE
        yield from self._beside_code(diagnosis.code if shown else Code.TAINTED, diagnosis.device_id, demand, option)

    def _of_counters(self, facts: ReasonFacts, nearest: NearestDevice) -> Iterator[str]:
        """Yield the other counters that do not suffice for the nearest device, and who draws on them."""
        for device in (device for diagnosis in facts.diagnoses for device in diagnosis.devices):
            if device.device_id != nearest.device_id:
                continue
            for lacking in device.further_shortages[:EXAMPLES]:
                shares = self._nearest.drawing(device.device_id, lacking.counter_set)
                drawing = [share.holder for share in shares if lacking.counter in dict(share.counters)]
                # Who draws on the set of the first counter is named already.
                known = nearest.shortage is not None and nearest.shortage.counter_set == lacking.counter_set
                held = [] if known else [holder_text(holder, self._view.now) for holder in drawing]
                yield (
                    f"also {lacking.counter_set} {lacking.counter}: needs {quantity_text(lacking.requested)}, "
                    f"{quantity_text(lacking.remaining)} left{f', held by {listed(held)}' if held else ''}"
                )
            return

    def _of_amounts(self, nearest: NearestDevice, option: SearchableRequest) -> Iterator[str]:
        """Yield why the request needs another amount of a capacity than it names."""
        need, device = nearest.capacity, self._nearest.published_nearest(nearest)
        if need is None or device is None:
            yield from self._left_of(nearest, device, option)
            return
        requested = published_amounts(option.capacity, device.capacity, nearest.device_id[0]).get(need.capacity)
        if requested is None:
            default = "the default of the device counts" if need.needed < need.total else "all of it counts"
            yield f"the request names no amount of {need.capacity}: {default}"
        elif requested != need.needed:
            yield f"the request asks for {quantity_text(requested)}, which the request policy of the device rounds up"

    def _left_of(self, nearest: NearestDevice, device: Device | None, option: SearchableRequest) -> Iterator[str]:
        """Yield what holders leave of the capacities of which the device can never give what is asked for."""
        capacities = () if device is None else device.capacity
        requested = published_amounts(option.capacity, capacities, nearest.device_id[0])
        for name, left in self._nearest.left(nearest).items():
            total = dict(capacities)[name].value
            if left < total and (name in requested or not requested.keys() <= dict(capacities).keys()):
                yield f"also {name}: {quantity_text(left)} of {quantity_text(total)} left"

    def _held_in_common(self, facts: ReasonFacts, demand: Demand, node: Node) -> Iterator[str]:
        """Yield which device that is held has a value on which all requests of a matchAttribute could agree."""
        claim = facts.claim
        if claim is None or any(request.prioritized for request in claim.requests):
            return
        options = [option for request in claim.requests for option in request.options]
        named = (
            constraint
            for constraint in claim.constraints
            if not constraint.distinct and constraint.text() in facts.rejection.detail
        )
        for constraint in islice(named, 1):
            taking_part = [option for option in options if constraint.applies_to(option.main, option.name)]
            if facts.option not in taking_part or any(constraint.attribute in option.derived for option in taking_part):
                continue
            by_request = [
                (option.count, self._by_value(claim.label, demand, option, constraint, node)) for option in taking_part
            ]
            for value, device in islice(_lacking_devices(by_request), 1):
                holders = [holder_text(share.holder, self._view.now) for share in self._nearest.in_the_way(device)]
                if holders:
                    held = f"is held by {listed(holders)}"
                    yield f"{device.device_id[2]} has the common value {value[1]}, and {held}"
                    return

    def _by_value(
        self, label: str, demand: Demand, option: SearchableRequest, constraint: Constraint, node: Node
    ) -> Mapping[TypedValue, Sequence[DeviceDiagnosis]]:
        """Return the devices that the request could have, and those that are held, by their values of the attribute."""
        by_value = dict[TypedValue, list[DeviceDiagnosis]]()
        for diagnosis in self._nearest.diagnose(demand, (label, option.name), [node.name]):
            for device in diagnosis.devices:
                if device.code in (None, Code.IN_USE):
                    for value in self._nearest.values(device.device_id, constraint.attribute):
                        by_value.setdefault(value, []).append(device)
        return by_value

    def _of_other_devices(self, facts: ReasonFacts, demand: Demand, node: Node) -> Iterator[str]:
        """Yield the further reasons of the search on a node."""
        rejection, usage = facts.rejection, self._view.ledger.usage()
        answer = self._view.extender.allocator.search(demand, node, usage, self._view.budget())
        if rejection.code is Code.COMBINATION and rejection.device:
            yield rejection.detail
        where = f"on {node.name} " if len(facts.nodes) > 1 else ""
        # Whoever draws on what is short is named as its holder.
        codes = {rejection.code, *([Code.IN_USE] if rejection.code in _OF_WHOLE_SETS else [])}
        for other_rejection in answer.rejections if isinstance(answer, NoFit) else ():
            if other_rejection.code not in codes and (other_rejection.claim, other_rejection.request) == (
                rejection.claim,
                rejection.request,
            ):
                text = (
                    other_rejection.detail
                    if other_rejection.code is Code.COMBINATION
                    else f"{other_rejection.code.value}: {other_rejection.detail}"
                )
                yield f"also {where}{text}"

    def _beside_devices(self, nodes: Sequence[str]) -> Iterator[str]:
        """Yield what kube-scheduler's other filters say of these nodes, if they refuse the pod on all of them."""
        fit, nodes_by_refusal = self._view.pod_fit(self._pod), dict[str, list[str]]()
        if fit is None:
            return
        for name in nodes:
            refusals = fit.refusals(name)
            if not refusals:
                return
            for refusal in refusals:
                nodes_by_refusal.setdefault(refusal.description, []).append(name)
        for description, names in nodes_by_refusal.items():
            yield f"also {description} on {listed(names)}"

    def _not_found(self, rejection: Rejection, node: Node, option: SearchableRequest) -> Iterator[str]:
        """Yield what the selector that failed reads and does not find on the device, and what is there."""
        pools = self._view.extender.allocator.pools_of(node)
        for published in () if pools is None else {id(view): view.published for view in pools.views}.values():
            for position, device in enumerate(published.devices):
                if f"{published.driver}/{published.pool}/{device.name}: " in rejection.detail:
                    text = UnmetSelectors(option.selectors, self._view.budget()).failure(published, position)
                    if text:
                        yield text
                    return


def _in_the_way_of_all(facts: ReasonFacts, node: Node) -> Iterator[str]:
    """Yield the devices that the request needs too and cannot have for another reason: the search ends with the first."""
    by_code = dict[Code, list[str]]()
    for diagnosis in facts.diagnoses:
        for device in diagnosis.devices if diagnosis.node.name == node.name else ():
            if device.code not in (None, Code.NO_MATCH, facts.rejection.code):
                by_code.setdefault(device.code, []).append(device.device_id[2])
    yield from (f"also {code.value}: {listed(names)}" for code, names in by_code.items())


def _lacking_devices(
    by_request: Sequence[tuple[int, Mapping[TypedValue, Sequence[DeviceDiagnosis]]]],
) -> Iterator[tuple[TypedValue, DeviceDiagnosis]]:
    """Yield the values that enough devices of each request have (count, devices by value), with the held ones needed."""
    common = set[TypedValue].intersection(*(set(by_value) for _, by_value in by_request))
    for value in sorted(common, key=str):
        devices = [(count, by_value[value]) for count, by_value in by_request]
        if all(len(with_value) >= count for count, with_value in devices):
            for count, with_value in devices:
                held = [device for device in with_value if device.code is Code.IN_USE]
                if len(with_value) - len(held) < count:
                    yield from ((value, device) for device in held)
