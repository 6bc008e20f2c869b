"""What is said of one device, line by line: the comparison that fails, amounts, groups, and who is in the way."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.holders import holder_text
from dra_extender.inspection.lines import age_text
from dra_extender.inspection.why.report import CounterNeed, HolderShare, NearestDevice, PoolGap
from dra_extender.model.api_json import listed

_MOST_HOLDERS: Final = 4


def place_of(nearest: NearestDevice) -> str:
    """`node-3/gpu-0`; the pool is named where it is not the node."""
    _, pool, device = nearest.device_id
    return f"{nearest.node}/{device}" if pool == nearest.node else f"{nearest.node}/{pool}/{device}"


def device_lines(nearest: NearestDevice, now: float) -> Iterator[str]:
    """What keeps the device away; `now` is when the objects were read, seconds since the epoch."""
    if nearest.shortage is not None:
        yield from _shortage(nearest, nearest.shortage, now)
    elif nearest.counter_set:
        yield from _groups(nearest, now)
    elif nearest.capacity is not None:
        need = nearest.capacity
        left, total = quantity_text(need.left), quantity_text(need.total)
        yield f"{need.capacity}: needs {quantity_text(need.needed)}, {left} of {total} left"
        yield from _held(nearest.holders, need.capacity, now)
    else:
        if nearest.detail:
            yield _short(nearest) + _selector(nearest)
        yield from _held(nearest.holders, None, now)


def gap_line(pool: PoolGap) -> str:
    """E.g. `gpu.example.com/node-3: 1 of 2 slices of generation 4`."""
    return f"{pool.driver}/{pool.pool}: {pool.slices} of {pool.expected} slices of generation {pool.generation}"


def _short(nearest: NearestDevice) -> str:
    """The detail with the names of the device's own attributes and capacities alone."""
    driver = nearest.device.partition("/")[0]
    text = nearest.detail
    for kind in ("attributes", "capacity"):
        text = text.replace(f'device.{kind}["{driver}"].', "")
    return text


def _selector(nearest: NearestDevice) -> str:
    found = nearest.selector
    return "" if found is None else f" ({found.origin} selector {found.number})"


def _shortage(nearest: NearestDevice, short: CounterNeed, now: float) -> Iterator[str]:
    yield _counter(short)
    yield from _held(nearest.holders, short.counter, now)


def _counter(need: CounterNeed) -> str:
    left, total = quantity_text(need.left), quantity_text(need.total)
    return f"{need.counter_set} {need.counter}: needs {quantity_text(need.needed)}, {left} of {total} left"


def _groups(nearest: NearestDevice, now: float) -> Iterator[str]:
    """Whose groups are in force, and whether counters alone would let the device in."""
    in_force = nearest.in_force
    state = (
        "is used without groups"
        if in_force is None
        else f"is in [{', '.join(in_force)}]"
        if in_force
        else "has holders whose groups contradict each other"
    )
    owners = [_owner(each, now) for each in nearest.holders[:_MOST_HOLDERS]]
    more = len(nearest.holders) - _MOST_HOLDERS
    yield f"{nearest.counter_set} {state}: {'; '.join(owners)}{f' and {more} more' if more > 0 else ''}"
    if nearest.sufficient:
        left = [f"{_amount(each)}" for each in nearest.sufficient]
        yield f"counters would suffice: {', '.join(left)}"


def _amount(need: CounterNeed) -> str:
    return f"{need.counter} {quantity_text(need.left)} of {quantity_text(need.total)} left"


def _owner(share: HolderShare, now: float) -> str:
    """`claim desk-gpu, pod vdi/desk-4, 3h`."""
    holder = share.holder
    parts = [f"claim {holder.claim.partition('/')[2]}"]
    parts += [each if " " in each else f"pod {each}" for each in holder.consumers]
    parts += ["claim deleted"] if holder.orphaned else [holder.leaving] if holder.leaving else []
    parts += ["being allocated"] if holder.pending else []
    if holder.since is not None:
        parts.append(age_text(max(0.0, now - holder.since)))
    return ", ".join(parts)


def _held(holders: Sequence[HolderShare], counter: str | None, now: float) -> Iterator[str]:
    if not holders:
        return
    yield f"held by {listed([_share(each, counter, now) for each in holders], _MOST_HOLDERS)}"


def _share(share: HolderShare, counter: str | None, now: float) -> str:
    amount = dict(share.counters).get(counter) if counter is not None else None
    if amount is None:
        return holder_text(share.holder, now)
    without_age = holder_text(msgspec.structs.replace(share.holder, since=None), now)
    since = share.holder.since
    age = "" if since is None else f" for {age_text(max(0.0, now - since))}"
    return f"{without_age} {quantity_text(amount)}{age}"
