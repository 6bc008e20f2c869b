"""Where an allocation froze other amounts or groups (KEP-5963 snapshot) than the slice has now."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.holders import HeldDevice
from dra_extender.model.api_json import Value
from dra_extender.model.device import CounterConsumption, Device

AT_ALLOCATION: Final = "at allocation"
NOW: Final = "now"


class AmountDifference(Value, frozen=True):
    """What a device draws on a counter, in nano-units: as frozen with the allocation, and as published now; None: nothing."""

    counter: str
    frozen: int | None = None
    published: int | None = None


class SnapshotDifference(Value, frozen=True):
    """A counter set for which the allocations of `claims` (`namespace/name`) and the slice say different things.

    `counters` are those alone whose amounts differ.  Where the groups differ, `frozen_groups` are those at allocation and
    `published_groups` those of the slice now; equal groups are left out.  `drawn_on` is `at allocation` or `now` if the device
    draws on the counter set only then.
    """

    counter_set: str
    claims: tuple[str, ...]
    counters: tuple[AmountDifference, ...] = ()
    groups_differ: bool = False
    frozen_groups: tuple[str, ...] = ()
    published_groups: tuple[str, ...] = ()
    drawn_on: str = ""


def snapshot_differences(device: Device, found: Sequence[HeldDevice]) -> tuple[SnapshotDifference, ...]:
    """The differences of a published device, by counter set; allocations with the same differences are one."""
    live = _by_set(device.consumes_counters)
    claims: defaultdict[SnapshotDifference, list[str]] = defaultdict(list)
    for each in found:
        if not each.holding.admin and each.holding.is_frozen:
            for difference in _between(_by_set(each.holding.drawn(device)), live):
                claims[difference].append(each.holder.claim)
    merged = (_of_claims(each, names) for each, names in claims.items())
    return tuple(sorted(merged, key=lambda each: (each.counter_set, each.claims)))


def difference_text(difference: SnapshotDifference) -> str:
    """E.g. `gpu-0: sm 42 at allocation, 28 now; groups mig at allocation, vgpu now`."""
    parts = [
        f"{each.counter} {_amount(each.frozen)} at allocation, {_amount(each.published)} now"
        for each in difference.counters
    ]
    if difference.groups_differ:
        then, now = difference.frozen_groups, difference.published_groups
        parts.append(f"groups {_groups(then)} at allocation, {_groups(now)} now")
    if not parts:
        parts.append(f"drawn on {difference.drawn_on} alone")
    return f"{difference.counter_set}: {'; '.join(parts)}"


def _between(
    frozen: Mapping[str, CounterConsumption], live: Mapping[str, CounterConsumption]
) -> Iterator[SnapshotDifference]:
    for name in sorted({*frozen, *live}):
        then, now = frozen.get(name), live.get(name)
        drawn_on = NOW if then is None else AT_ALLOCATION if now is None else ""
        counters, groups = tuple(_amounts(then, now)), (_groups_of(then), _groups_of(now))
        differ = groups[0] != groups[1]
        if counters or differ or drawn_on:
            yield SnapshotDifference(
                counter_set=name,
                claims=(),
                counters=counters,
                groups_differ=differ,
                frozen_groups=groups[0] if differ else (),
                published_groups=groups[1] if differ else (),
                drawn_on=drawn_on,
            )


def _amounts(then: CounterConsumption | None, now: CounterConsumption | None) -> Iterator[AmountDifference]:
    """The counters whose amounts differ, by name."""
    before, after = (dict(() if each is None else each.counters) for each in (then, now))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield AmountDifference(counter=name, frozen=before.get(name), published=after.get(name))


def _groups_of(drawn: CounterConsumption | None) -> tuple[str, ...]:
    return () if drawn is None else tuple(sorted(drawn.compatibility_groups))


def _by_set(entries: Sequence[CounterConsumption]) -> Mapping[str, CounterConsumption]:
    return {each.counter_set: each for each in entries}


def _of_claims(difference: SnapshotDifference, claims: Sequence[str]) -> SnapshotDifference:
    return msgspec.structs.replace(difference, claims=tuple(sorted(claims)))


def _amount(amount: int | None) -> str:
    return "none" if amount is None else quantity_text(amount)


def _groups(groups: Sequence[str]) -> str:
    """The names of the groups; `none` where there are none."""
    return ", ".join(groups) or "none"
