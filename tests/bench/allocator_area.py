from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from tests.bench.allocator_blowups import BLOW_UPS, BlowUp
from tests.bench.allocator_cluster import Cluster
from tests.bench.allocator_go import GoTime, upstream
from tests.bench.allocator_growth import GROWTHS, Growth
from tests.bench.allocator_ours import Ours, OurTime, decisions
from tests.bench.allocator_shapes import SHAPES, Shape
from tests.bench.rows import BenchError, Goal, Row, compare
from tests.bench.scale import Scale

AREA: Final = "allocator"
PEER: Final = "upstream's allocator in Go"
_SHAPE_CAP: Final = 5.0
_ENOUGH_SECONDS: Final = 2.0
_COLD: Final = Goal("<=", 0.5)
_WARM: Final = Goal("<=", 0.05)
_COLD_VARIED: Final = Goal("<=", 3.0)
_WARM_VARIED: Final = Goal("<=", 0.1)
_BLOW_UP: Final = Goal(">=", 1000.0)
_LINEAR: Final = Goal("<=", 1.2)
_CHANGES: Final = 3


async def measure(scale: Scale, _: Path) -> list[Row]:
    """One pod over all nodes, beside upstream: the shapes at each size, blow-ups on one node, and how the time grows."""
    rows: list[Row] = []
    for nodes in scale.allocator_nodes:
        for shape in SHAPES:
            if nodes <= shape.largest:
                rows += await _shape(shape, nodes, scale.allocator_rounds)
    rows += [await _blow_up(each, scale) for each in BLOW_UPS]
    for each in GROWTHS:
        rows.append(await _growth(each, scale))
    return rows


async def _shape(shape: Shape, nodes: int, rounds: int) -> list[Row]:
    """Cold: no pod like this one was asked for before.  Warm: one was, and since then one node has changed."""
    cluster = shape.fill(nodes)
    ours = Ours(cluster)
    try:
        first = ours.ask().seconds
        cold: list[tuple[float, float]] = []
        warm: list[tuple[float, float]] = []
        processor: list[float] = []
        begin = monotonic()
        async with upstream(cluster, _SHAPE_CAP) as go:
            while len(cold) < rounds:
                ours.forget()
                mine = _checked(ours, theirs := await go.ask(), cluster)
                processor.append(mine.processor / theirs.processor)
                changed = [ours.after_a_change() for _ in range(_CHANGES)]
                ours.calm()
                cold.append((1e3 * mine.seconds, 1e3 * theirs.seconds))
                warm.append((1e3 * median(changed), 1e3 * theirs.seconds))
                if theirs.stopped or monotonic() - begin > _ENOUGH_SECONDS * rounds:
                    break
    finally:
        ours.close()
    case, goals = f"{nodes} nodes, {shape.name}", (_COLD, _WARM)
    if shape.varied:
        goals = (_COLD_VARIED, _WARM_VARIED)
    details = {
        "ratio of processor time": median(processor),
        "first pod after a start ms": 1e3 * first,
        **_stopped(theirs),
    }
    return [
        compare(AREA, f"{case}, cold", "ms", cold, PEER, goal=goals[0], details=details),
        compare(AREA, f"{case}, warm", "ms", warm, PEER, goal=goals[1]),
    ]


async def _blow_up(blow_up: BlowUp, scale: Scale) -> Row:
    cluster = blow_up.fill()
    ours = Ours(cluster)
    try:
        async with upstream(cluster, scale.blow_up_seconds) as go:
            theirs = await go.ask()
        pairs = []
        for _ in range(scale.allocator_rounds):
            ours.forget()
            mine = _checked(ours, theirs, cluster, fits=blow_up.fits)
            pairs.append((1 / mine.processor, 1 / theirs.processor))
    finally:
        ours.close()
    case = f"blow-up: {blow_up.name}"
    return compare(AREA, case, "answers per s of processor time", pairs, PEER, goal=_BLOW_UP, details=_stopped(theirs))


async def _growth(growth: Growth, scale: Scale) -> Row:
    """How many times as long the larger one takes, by how many times it is larger."""
    larger = min(growth.large, scale.growth * growth.small)
    factor = larger / growth.small
    mine: list[tuple[float, float]] = []
    theirs: list[float] = []
    small, large = growth.fill(growth.small), growth.fill(larger)
    ours_small, ours_large = Ours(small), Ours(large)
    try:
        async with upstream(small, _SHAPE_CAP) as go_small, upstream(large, _SHAPE_CAP) as go_large:
            for _ in range(scale.allocator_rounds):
                few, many = await go_small.ask(), await go_large.ask()
                ours_small.forget()
                ours_large.forget()
                less, more = _checked(ours_small, few, small), _checked(ours_large, many, large)
                mine.append((more.processor / less.processor, factor))
                theirs.append(many.processor / few.processor)
    finally:
        ours_small.close()
        ours_large.close()
    case = f"{growth.small} to {larger} {growth.name}: growth of the processor time"
    return compare(AREA, case, "x", mine, "linear growth", goal=_LINEAR, details={"Go's growth x": median(theirs)})


def _checked(ours: Ours, theirs: GoTime, cluster: Cluster, *, fits: bool | None = None) -> OurTime:
    """Our time; an answer that is not upstream's, or not the right one where upstream has none, is no measurement."""
    mine = ours.ask()
    if not theirs.stopped and decisions(mine.evaluation, cluster.names) != theirs.decisions:
        raise BenchError("our decisions are not upstream's")
    if fits is not None and bool(mine.evaluation.fits) != fits:
        raise BenchError(f"a pod that {'fits' if fits else 'does not fit'} was judged otherwise")
    return mine


def _stopped(theirs: GoTime) -> dict[str, float]:
    return {"peer was stopped, its answered nodes": theirs.reached} if theirs.stopped else {}
