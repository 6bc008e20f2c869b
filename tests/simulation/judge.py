"""The rules that hold at every moment, judged again after a write only where the write touches something.

A pool, a claim or a pod is judged by `audit` over the objects that it refers to, and nothing else, so that the rules are the same
as over the whole cluster.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, cast

import msgspec
from dra_extender.inspection.audit.claims import UsedClaim, used_claims
from dra_extender.inspection.audit.findings import Invariant, InvariantViolation
from dra_extender.ledger.guard_index import is_guard
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.allocation_snapshot import holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.node import Node, node_from
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import ClaimHead, claim_from
from dra_extender.model.resource_slice import ResourceSlice, SliceReader
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.audit.raw_objects import audit
from tests.support.e2e.checker import NEVER
from tests.support.model.reading import pod_from

RIVAL: Final = "rival-"
"""How names of the rival's pods and claims begin."""
_OF_CLAIMS: Final = frozenset({Invariant.UNREADABLE, Invariant.NO_FINALIZER})
_OF_PODS: Final = frozenset({Invariant.AWAY, Invariant.KUBELET})
_OF_POOLS: Final = NEVER - _OF_CLAIMS - {Invariant.NEIGHBOURS}
ALWAYS: Final = NEVER | _OF_PODS
_NEIGHBOURS: Final = ("neighbours",)
"""Where any device has a rule about its neighbours, these rules are judged over the whole cluster."""

Name = tuple[Hashable, ...]
"""What objects refer to, or what is judged: its kind, then what identifies it."""


class Judge:
    """Knows which rules the objects break of which it was told."""

    def __init__(self, guard_namespace: str) -> None:
        self._guard_namespace = guard_namespace
        self._read: dict[StoredKind, Callable[[bytes], Any]] = {
            StoredKind.CLAIM: lambda data: claim_from(msgspec.json.decode(data)),
            StoredKind.SLICE: SliceReader().read,
            StoredKind.POD: lambda data: pod_from(msgspec.json.decode(data)),
            StoredKind.NODE: lambda data: node_from(msgspec.json.decode(data)),
            StoredKind.POD_GROUP: read_pod_group,
        }
        self._objects: dict[StoredKind, dict[Key, Any]] = {kind: {} for kind in self._read}
        self._referring: defaultdict[Name, dict[Key, None]] = defaultdict(dict)
        self._broken: dict[Name, list[str]] = {}

    def change(self, key: Key, data: bytes | None) -> tuple[Any, Any]:
        """Learn what is stored by now, None if it is gone; return the object before and after.

        Of what cannot be read, the state before counts, as it does for the service.
        """
        if key.kind not in self._read:
            return None, None
        objects = self._objects[key.kind]
        before, after = objects.get(key), None
        if data is not None:
            try:
                after = self._read[key.kind](data)
            except ModelError:
                after = before
        touched: dict[Name, None] = {}
        self._forget(key, before, touched)
        objects.pop(key, None)
        if after is not None:
            objects[key] = after
        self._keep(key, after, touched)
        for name in touched:
            self._judge(name)
        return before, after

    def broken(self) -> list[str]:
        """Everything that is wrong now."""
        return sorted({each for found in self._broken.values() for each in found})

    def broken_in_full(self) -> list[str]:
        """As `broken`, with everything judged anew."""
        claims, slices, pods, nodes, groups = (_values(self._objects[kind]) for kind in self._read)
        found = audit(claims, slices, pods, nodes, groups, GroupEntryPolicy.AUTO, self._guard_namespace)
        pools = {pool: None for claim in claims for pool in self._pools(claim)}
        return sorted({*_texts(found), *(text for pool in pools for text in self._bound_twice(pool))})

    def reserved_for(self, uid: str) -> Iterator[ClaimHead]:
        return (self._objects[StoredKind.CLAIM][key] for key in self._referring.get(("reserved for", uid), ()))

    def _forget(self, key: Key, thing: Any, touched: dict[Name, None]) -> None:
        for name in self._references(key, thing):
            touched.update(dict.fromkeys(self._dependent(key, name)))
            referring = self._referring[name]
            referring.pop(key, None)
            if not referring:
                del self._referring[name]

    def _keep(self, key: Key, thing: Any, touched: dict[Name, None]) -> None:
        for name in self._references(key, thing):
            self._referring[name][key] = None
            touched.update(dict.fromkeys(self._dependent(key, name)))

    def _references(self, key: Key, thing: Any) -> Iterator[Name]:
        """What an object refers to, and what refers to it by other names than its key."""
        match thing:
            case ClaimHead():
                yield "claim", key.namespace, key.name
                for holding in self._holdings(thing):
                    yield ("pool", *holding.pool_id)
                    if holding.compatible_only_with is not None:
                        yield _NEIGHBOURS
                for consumer in thing.status.reserved_for:
                    yield "reserved for", consumer.uid
            case ResourceSlice():
                yield ("slices", *thing.pool_id)
                if any(device.compatible_only_with is not None for device in thing.devices):
                    yield _NEIGHBOURS
            case Pod():
                yield "pod", thing.uid
                for used in used_claims(thing):
                    if isinstance(used, UsedClaim):
                        yield "used", thing.namespace, used.name
                if thing.node_name:
                    yield "on", thing.node_name
            case Node():
                yield "node", thing.name

    def _dependent(self, key: Key, name: Name) -> Iterator[Name]:
        """What must be judged again when an object that has this reference changes."""
        kind, *rest = name
        if kind == "claim":
            yield name
            yield from (("pod of", each) for each in self._referring.get(("used", *rest), ()))
        elif kind in ("pool", "slices"):
            yield ("pool", *rest)
        elif kind == "pod":
            yield "pod of", key
            for claim in self.reserved_for(str(rest[0])):
                yield from (("pool", *pool) for pool in self._pools(claim))
        elif kind == "node":
            yield from (("pod of", each) for each in self._referring.get(("on", *rest), ()))
        if kind in ("pool", "slices") or name == _NEIGHBOURS:
            yield _NEIGHBOURS

    def _judge(self, name: Name) -> None:
        found = sorted(set(self._found(name)))
        if found:
            self._broken[name] = found
        else:
            self._broken.pop(name, None)

    def _found(self, name: Name) -> Iterator[str]:
        kind, *rest = name
        objects = self._objects
        if kind == "pool":
            pool = (str(rest[0]), str(rest[1]))
            found = self._audit(self._claims_of(pool), self._slices_of(pool))
            about = "/".join(pool)
            yield from _texts(
                each for each in found if each.rule in _OF_POOLS and each.about.rpartition("/")[0] == about
            )
            yield from self._bound_twice(pool)
        elif kind == "claim":
            claim = objects[StoredKind.CLAIM].get(Key(StoredKind.CLAIM, str(rest[0]), str(rest[1])))
            found = () if claim is None else self._audit([claim])
            yield from _texts(each for each in found if each.rule in _OF_CLAIMS)
        elif kind == "pod of":
            yield from self._of_pod(objects[StoredKind.POD].get(cast("Key", rest[0])))
        elif self._referring.get(_NEIGHBOURS):
            found = self._audit(_values(objects[StoredKind.CLAIM]), _values(objects[StoredKind.SLICE]))
            yield from _texts(each for each in found if each.rule == Invariant.NEIGHBOURS)

    def _of_pod(self, pod: Pod | None) -> Iterator[str]:
        if pod is None or not pod.node_name or pod.finished:
            return
        claims = self._objects[StoredKind.CLAIM]
        keys = [
            Key(StoredKind.CLAIM, pod.namespace, each.name) for each in used_claims(pod) if isinstance(each, UsedClaim)
        ]
        node = self._objects[StoredKind.NODE].get(Key(StoredKind.NODE, "", pod.node_name))
        used = [claims[key] for key in dict.fromkeys(keys) if key in claims]
        found = self._audit(used, pods=[pod], nodes=[] if node is None else [node])
        yield from _texts(each for each in found if each.rule in _OF_PODS)

    def _bound_twice(self, pool: PoolId) -> Iterator[str]:
        """Devices of the pool that two bound pods have: what a pod has when it is bound stays its own."""
        holders: dict[str, str] = {}
        for claim in self._claims_of(pool):
            if any(self._is_bound(each.uid) for each in claim.status.reserved_for):
                name = "/".join(claim.metadata.key)
                for device in _whole_devices(self._holdings(claim), pool):
                    if device in holders:
                        yield f"bound twice: {'/'.join((*pool, device))}: {holders[device]} and {name}"
                    holders[device] = name

    def _is_bound(self, uid: str) -> bool:
        pods = (self._objects[StoredKind.POD][key] for key in self._referring.get(("pod", uid), ()))
        return any(pod.node_name and not pod.finished for pod in pods)

    def _claims_of(self, pool: PoolId) -> list[ClaimHead]:
        claims = self._objects[StoredKind.CLAIM]
        return [claims[key] for key in sorted(self._referring.get(("pool", *pool), ()))]

    def _slices_of(self, pool: PoolId) -> list[ResourceSlice]:
        slices = self._objects[StoredKind.SLICE]
        return [slices[key] for key in sorted(self._referring.get(("slices", *pool), ()))]

    def _pools(self, claim: ClaimHead) -> Iterator[PoolId]:
        return (each.pool_id for each in self._holdings(claim))

    def _holdings(self, claim: ClaimHead) -> list[DeviceHolding]:
        if is_guard(claim.metadata.key, self._guard_namespace):
            return []
        try:
            return [each for each in holdings_of(claim) if not each.admin]
        except ModelError:
            return []

    def _audit(
        self,
        claims: list[ClaimHead],
        slices: list[ResourceSlice] | None = None,
        pods: list[Pod] | None = None,
        nodes: list[Node] | None = None,
    ) -> tuple[InvariantViolation, ...]:
        auto = GroupEntryPolicy.AUTO
        return audit(claims, slices or [], pods or [], nodes or [], None, auto, self._guard_namespace)


def _whole_devices(holdings: list[DeviceHolding], pool: PoolId) -> Iterator[str]:
    return (each.device for each in holdings if each.pool_id == pool and each.share_id is None)


def _values(objects: dict[Key, Any]) -> list[Any]:
    return [objects[key] for key in sorted(objects)]


def _texts(found: Any) -> Iterator[str]:
    """Rules that hold at every moment; the rival may store what a pod of ours has that is not bound yet."""
    for each in found:
        if each.rule in ALWAYS and not (each.rule == Invariant.DEVICE_TWICE and RIVAL in each.detail):
            yield str(each)
