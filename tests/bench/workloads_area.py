from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench import contenders
from tests.bench.contenders import IN_TREE
from tests.bench.group_loads import claims_from_a_template, gangs, one_shared_claim
from tests.bench.rows import Row, compare
from tests.bench.scale import Scale
from tests.bench.throughput_area import interleaved, pairs, processor

AREA: Final = "workloads"
_OURS: Final = replace(contenders.ours(), environment={"DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always"})
_PEER: Final = replace(
    IN_TREE,
    name="in-tree plugin and gangs, gates on",
    seconds=60.0,
    scheduler_gates={"GenericWorkload": True, "DRAWorkloadResourceClaims": True},
)


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Pods per second of PodGroups that share claims, and of gangs: ours, its scheduler's gates off, beside all in-tree."""
    loads = (one_shared_claim(scale.group), claims_from_a_template(*scale.groups), gangs(*scale.gangs))
    rows = []
    for load in loads:
        runs = await interleaved([_OURS, _PEER], load, replace(scale, runs=scale.group_runs, repeats=0), workdir)
        mine, theirs = runs[_OURS.name], runs[_PEER.name]
        details = {**processor(mine, "ours"), **processor(theirs, "peer")}
        rows.append(compare(AREA, load.name, "pods/s", pairs(mine, theirs), _PEER.name, details=details))
    return rows
