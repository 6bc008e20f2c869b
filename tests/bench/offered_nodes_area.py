from pathlib import Path
from typing import Final

from tests.bench import contenders
from tests.bench.load import one_device_each
from tests.bench.rows import Row, compare
from tests.bench.scale import Scale
from tests.bench.throughput_area import interleaved, pairs, processor

AREA: Final = "offered-nodes"
_CHOICES: Final = (1, 4, 8, 16)


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """Throughput at the smallest size by how many nodes a pod is offered, against the default of the setting."""
    load = one_device_each(scale.throughput_nodes[0], scale.pods)
    default = contenders.ours()
    tried = [contenders.ours(count) for count in _CHOICES[: scale.peers]]
    runs = await interleaved([default, *tried], load, scale, workdir)
    return [
        compare(
            AREA,
            f"{load.name}, {each.name}",
            "pods/s",
            pairs(runs[each.name], runs[default.name]),
            "the default setting",
            details=processor(runs[each.name], "ours"),
        )
        for each in tried
    ]
