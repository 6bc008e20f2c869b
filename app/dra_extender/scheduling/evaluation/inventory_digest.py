"""Digests of what slices publish, without the names of slices and pools, and without what is read by nobody."""

import weakref
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from dra_extender.allocator.demand.reads import Reads, is_read
from dra_extender.model.device import Attribute, Device
from dra_extender.model.resource_slice import ResourceSlice

_DIGEST_BYTES: Final = 16
_MAX_KEPT: Final = 10_000
_UNREAD: Final = Attribute(string_value="")
"""Stands for an attribute that has a value, whatever it is."""


class InventoryDigest:
    """Remembers the digest of each slice while the slice lives."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[weakref.ref[ResourceSlice], bytes | None]] = {}
        self._kept: dict[tuple[Reads, str], dict[str, bool]] = {}

    def of_pool(self, slices: Sequence[ResourceSlice], reads: Reads | None) -> Any:
        """What a pool of one node publishes, with the order in which its slices count; None if it cannot be compared."""
        newest = max(each.generation for each in slices)
        digests = [
            (each.generation - newest, each.slice_count, self._digest(each, reads))
            for each in sorted(slices, key=lambda each: each.name)
        ]
        return None if any(digest is None for _, _, digest in digests) else digests

    def _digest(self, item: ResourceSlice, reads: Reads | None) -> bytes | None:
        if reads is not None:
            return _slice_digest(item, [self._projected(each, item.driver, reads) for each in item.devices])
        key = id(item)
        known = self._digests.get(key)
        if known is None:
            digests = self._digests
            reference = weakref.ref(item, lambda _: digests.pop(key, None))
            known = digests[key] = reference, _slice_digest(item, item.devices)
        return known[1]

    def _projected(self, device: Device, driver: str, reads: Reads) -> Device:
        """The device with the values of attributes hidden that nobody reads.

        Values that may be defective stay, because expressions fail on a device with such an attribute, whatever they read.
        """
        known = self._kept.get((reads, driver))
        if known is None or len(known) >= _MAX_KEPT:
            known = self._kept[reads, driver] = {}
        attributes = []
        for pair in device.attributes:
            name, attribute = pair
            kept = known.get(name)
            if kept is None:
                kept = known[name] = is_read(reads, driver, name)
            if not kept and _is_sound(attribute):
                pair = name, _UNREAD  # noqa: PLW2901 - one pair for another, in a loop that runs for every attribute of a fleet
            attributes.append(pair)
        return msgspec.structs.replace(device, attributes=tuple(attributes))


def digest_of(content: Any) -> bytes:
    """A digest of a value that can be written as JSON."""
    return blake2b(msgspec.json.encode(content), digest_size=_DIGEST_BYTES).digest()


def _is_sound(attribute: Attribute) -> bool:
    """Whether the value is one for expressions without being looked at closely."""
    if attribute.version_values is not None:
        return False
    return attribute.string_value is not None or attribute.int_value is not None or attribute.bool_value is not None


def _slice_digest(item: ResourceSlice, devices: Sequence[Device]) -> bytes | None:
    if item.per_device_node_selection or any(each.compatible_only_with is not None for each in devices):
        return None
    content = (
        item.driver,
        item.per_device_node_selection,
        item.skip_node_operations,
        item.counter_sets,
        devices,
    )
    return digest_of(content)
