"""CPU time of each view of the page over a large cluster: the first answer, and the next one."""

import time
from pathlib import Path
from statistics import median
from typing import Final

from dra_extender.page.states import Reports
from dra_extender.page.views import CommandLines, Views

from tests.bench.rows import BenchError, Row, within
from tests.bench.scale import Scale
from tests.support.inspection.large_cluster import DEVICES_OF_A_NODE, large_cluster

AREA: Final = "page"
SECONDS: Final = 1.0
_VIEWS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "Pending": ("pending", {}),
    "a pod": ("pending", {"pod": "ml/wait-0001"}),
    "Map": ("map", {}),
    "Node": ("node", {"name": "node-00001"}),
    "Waiting": ("waiting", {}),
    "Health": ("health", {}),
}


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    nodes = scale.filter_nodes[-1]
    made = large_cluster(nodes)
    views = Views("/t", CommandLines())
    rows = []
    for name, (path, query) in _VIEWS.items():
        states, first, later = [], [], []
        for _ in range(scale.runs):
            # What a view shows is found out when it is first asked for, so that each round has a state of its own.
            began = time.process_time()
            reports = Reports(made.view())
            reports.prepare()
            states.append(time.process_time() - began)
            first.append(_seconds(views, path, reports, query))
            later.append(_seconds(views, path, reports, query))
        rows.append(
            within(
                AREA,
                f"{nodes} nodes, {nodes * DEVICES_OF_A_NODE} devices: {name}",
                "s of CPU",
                first,
                SECONDS,
                details={"next answer s": median(later), "the state before it s": median(states)},
            )
        )
    return rows


def _seconds(views: Views, path: str, reports: Reports, query: dict[str, str]) -> float:
    began = time.process_time()
    answer = views.answer(path, reports, query)
    used = time.process_time() - began
    if answer.status_code != 200:
        raise BenchError(f"view {path} answered {answer.status_code}: {bytes(answer.body).decode()[:200]}")
    return used
