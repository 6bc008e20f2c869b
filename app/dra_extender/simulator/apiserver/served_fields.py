"""Which fields an API server of a given age keeps.  The API server drops other fields in silence."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Union

import msgspec

from dra_extender.model.api_json import Value
from dra_extender.model.fields import Gate, ListOf, MapOf, Mark, Record, fields_of
from dra_extender.model.objects import WRITTEN
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part
from dra_extender.simulator.apiserver.validation import InvalidError

OLDEST, NEWEST = 34, 37
_ON_SINCE: Final[Mapping[Gate, int]] = {
    Gate.BINDING_CONDITIONS: 36,
    Gate.CONSUMABLE_CAPACITY: 36,
    Gate.EXTENDED_RESOURCES: 36,
    Gate.COMPATIBILITY_GROUPS: 37,
    Gate.NODE_ALLOCATABLE_RESOURCES: 37,
    Gate.PARTITION_TYPES: 37,
}
"""The minor release since which a gate is on in the emulated API server; all other gates are on in every release."""
_STRIPPED: Final = frozenset({StoredKind.SLICE, StoredKind.CLAIM, StoredKind.CLASS, StoredKind.POD})


class Served(msgspec.Struct, frozen=True):
    """What the emulated API server keeps.

    `off`: the gates whose fields it drops.  `frozen_groups`: `compatibilityGroups` in allocations, as KEP-5963 has it and no
    release yet.  `devices_beside_counters`: slices with both, as in 1.34.  `allocation_times`: `allocationTimestamp`, which 1.34
    keeps only with binding conditions.
    """

    off: frozenset[Gate] = frozenset()
    frozen_groups: bool = False
    devices_beside_counters: bool = False
    allocation_times: bool = True

    def check(self, kind: StoredKind, item: Json) -> None:
        """Refuse what the server refuses.

        Raises:
            InvalidError: with the server's message.
        """
        spec = part(item, "spec") if kind is StoredKind.SLICE else {}
        if spec.get("sharedCounters") and spec.get("devices") and not self.devices_beside_counters:
            name = item["metadata"]["name"]
            raise InvalidError(
                f'{kind.singular}.resource.k8s.io "{name}"',
                'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
            )

    def strip(self, kind: StoredKind, item: Json) -> None:
        """Drop what the server does not keep, in place."""
        if kind in _STRIPPED:
            drop_fields(kind, item, self.off, drafts=self.frozen_groups)
        if kind is StoredKind.CLAIM and not self.allocation_times:
            part(part(item, "status"), "allocation").pop("allocationTimestamp", None)


def drop_fields(kind: StoredKind, item: Json, off: frozenset[Gate], *, drafts: bool) -> None:
    """Drop the fields of these gates, in place; `drafts`: fields that no release has are kept."""
    _drop(item, _dropped(WRITTEN[kind.singular], off, drafts=drafts))


Dropped = Mapping[str, Union["Dropped", None]]
"""Names of fields that are dropped (None), or in whose values fields are; `*` stands for every name in a mapping."""


@cache
def _dropped(struct: type[Value], off: frozenset[Gate], *, drafts: bool) -> Dropped:
    """Return what is dropped of an object while these gates are off; `drafts`: fields that no release has are kept."""
    dropped: dict[str, Dropped | None] = {}
    for field in fields_of(struct):
        if field.gate is not None and (not drafts if Mark.DRAFT in field.marks else field.gate in off):
            dropped[field.name] = None
            continue
        shape, is_map = field.shape, isinstance(field.shape, MapOf)
        while isinstance(shape, ListOf | MapOf):
            shape = shape.item if isinstance(shape, ListOf) else shape.value
        below = _dropped(shape.struct, off, drafts=drafts) if isinstance(shape, Record) else None
        if below:
            dropped[field.name] = {"*": below} if is_map else below
    return dropped


def _drop(value: Any, dropped: Dropped) -> None:
    if isinstance(value, list):
        for item in value:
            _drop(item, dropped)
    elif isinstance(value, dict):
        for name, below in dropped.items():
            if below is None:
                value.pop(name, None)
            elif name == "*":
                for item in value.values():
                    _drop(item, below)
            else:
                _drop(value.get(name), below)


def served_by(minor: int) -> Served:
    """Return what Kubernetes 1.`minor` keeps.

    Raises:
        ValueError: not a release from 1.34 to 1.37.
    """
    if not OLDEST <= minor <= NEWEST:
        raise ValueError(f"cannot emulate Kubernetes 1.{minor}: expected a minor release from {OLDEST} to {NEWEST}")
    return Served(
        off=frozenset(gate for gate, since in _ON_SINCE.items() if minor < since),
        devices_beside_counters=minor == OLDEST,
        allocation_times=minor > OLDEST,
    )
