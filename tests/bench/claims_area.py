from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench import contenders
from tests.bench.claim_loads import GROUPS_POLICY, claim_loads, grouped_load
from tests.bench.contenders import IN_TREE
from tests.bench.rows import Row, compare
from tests.bench.scale import Scale
from tests.bench.throughput_area import interleaved, pairs, processor

AREA: Final = "claims"


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Pods per second by what their claims ask for: ours beside the in-tree plugin, and groups beside ours without groups."""
    nodes, ours = scale.throughput_nodes[0], contenders.ours()
    grouping = replace(
        ours, name="ours, groups", environment={"DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(GROUPS_POLICY)}
    )
    # No released in-tree plugin knows groups of a policy, so that its peer is the same cluster without them.
    without_groups = replace(ours, name="ours without groups")
    comparisons = [(load, ours, IN_TREE) for load in claim_loads(nodes, scale.pods)[: scale.claim_loads]]
    comparisons.append((grouped_load(nodes, scale.pods), grouping, without_groups))
    rows = []
    for load, contender, peer in comparisons:
        runs = await interleaved([contender, peer], load, scale, workdir)
        mine, theirs = runs[contender.name], runs[peer.name]
        details = {**processor(mine, "ours"), **processor(theirs, "peer")}
        rows.append(compare(AREA, load.name, "pods/s", pairs(mine, theirs), peer.name, details=details))
    return rows
