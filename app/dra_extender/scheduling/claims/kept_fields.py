"""What an API server kept of an allocation that was written: fields behind gates that are off there vanish without a word."""

from collections.abc import Iterable

from dra_extender.model.allocation import AllocationResult


def same_devices(left: AllocationResult, right: AllocationResult) -> bool:
    """Whether both give the same devices, under the same share names, to the same requests."""
    return _identity(left) == _identity(right)


def same_allocation(left: AllocationResult, right: AllocationResult) -> bool:
    """As `same_devices`, and made at the same time."""
    return left.allocation_timestamp == right.allocation_timestamp and same_devices(left, right)


def stripped(written: AllocationResult, stored: AllocationResult) -> Iterable[str]:
    """The fields of the written allocation that are not in the stored one; the devices must be the same."""
    if stored.allocation_timestamp != written.allocation_timestamp:
        yield "allocationTimestamp"
    for sent, kept in zip(written.devices.results, stored.devices.results, strict=True):
        if sent.tolerations != kept.tolerations:
            yield "tolerations"
        if sent.binding_conditions != kept.binding_conditions:
            yield "bindingConditions"
        if sent.compatibility_groups is not None and kept.compatibility_groups is None:
            yield "compatibilityGroups"


def _identity(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    return [(each.request, *each.device_id, each.share_id) for each in allocation.devices.results]
