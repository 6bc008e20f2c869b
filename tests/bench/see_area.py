import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from dra_extender.inspection.snapshot_file import write_snapshot
from dra_extender.inspection.what_if.changes import Changes
from dra_extender.inspection.what_if.report import OutcomeKind
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.model.resource_claim import FINALIZER

from tests.bench.rows import BenchError, Goal, Row, compare, within
from tests.bench.scale import Scale
from tests.bench.see_worker import ADDED, TEMPLATE
from tests.controlplane.extender import REPOSITORY
from tests.controlplane.objects import consumption, counter_set, device, device_class, request, resource_claim_template
from tests.support.inspection.large_cluster import large_cluster
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

AREA: Final = "see"
DEVICES: Final = 4
HELD: Final = 3
CPU_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 1.0
FILL_SECONDS: Final = 10.0
WHAT_IF_SECONDS: Final = 3.0
MORE_NODES: Final = 10
READ_MEGABYTES: Final = 40.0
_AT_LEAST: Final = Goal(">=", 1.0)
_WAITING: Final = "train"


async def measure(scale: Scale, workdir: Path) -> list[Row]:
    """The commands over a snapshot, each time in a fresh process; CPU of that process, so that other load changes little."""
    file = workdir / "see.tar.gz"
    write_snapshot(_cluster(scale.see_nodes).cluster(), file)
    found = [await _asked(file, scale.see_nodes) for _ in range(scale.loads)]
    what = f"{scale.see_nodes} nodes, {scale.see_nodes * DEVICES} devices"
    return [
        within(
            AREA,
            f"{what}: why, beside reading the file",
            "s of CPU",
            [each["why"] for each in found],
            CPU_SECONDS,
            details={"of it to fill the ledger s": found[0]["ledger"], "file unpacked MB": found[0]["megabytes"]},
        ),
        *(
            within(
                AREA,
                f"{what}: {command}, beside reading the file and filling the ledger",
                "s of CPU",
                [each[command] for each in found],
                ANSWER_SECONDS,
            )
            for command in ("audit", "devices", "usage")
        ),
        within(
            AREA,
            f"{what}: what-if with {ADDED} nodes more, {found[0]['copies']} copies of a pod placed, beside reading the file",
            "s of CPU",
            [each["fill"] for each in found],
            FILL_SECONDS,
            details={"nodes with something stranded": found[0]["stranded"]},
        ),
        *[await _asked_what_if(scale, added) for added in (0, MORE_NODES)],
        compare(
            AREA,
            f"{what}: reading the file",
            "MB/s",
            [(each["megabytes"] / each["reading"], READ_MEGABYTES) for each in found],
            "goal",
            goal=_AT_LEAST,
        ),
    ]


async def _asked_what_if(scale: Scale, added: int) -> Row:
    """Ask where the pods that wait would land, as often as the file is read."""
    nodes = scale.what_if_nodes
    waiting = nodes * 3 // 10
    objects = large_cluster(nodes, waiting=waiting).cluster()
    changes = Changes(added=[("node-00001", added)] if added else ())
    seconds = []
    for _ in range(scale.loads):
        started = time.process_time()
        report = await what_if(objects, changes)
        seconds.append(time.process_time() - started)
        landed = sum(row.after.kind is OutcomeKind.LANDS for row in report.pods)
        if len(report.pods) != waiting or (landed > 0) != (added > 0):
            raise BenchError(f"what-if: {landed} of {len(report.pods)} pods land")
    asked = f"what-if with {added} nodes more" if added else "what-if, what happens next"
    case = f"{nodes} nodes, {len(objects.of_kind('pods'))} pods: {asked}"
    return within(AREA, case, "s of CPU", seconds, WHAT_IF_SECONDS)


def _cluster(nodes: int) -> MadeCluster:
    """Nodes with a GPU of four partitions each, three of which have pods; a pod wants more than is left on any node."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    for index in range(nodes):
        name = f"node-{index:05}"
        made.nodes(name)
        parts = [device(f"mig-{part}", consumes=[consumption("gpu-0", sm="28")]) for part in range(DEVICES)]
        made.partitions(name, [counter_set("gpu-0", sm="98")], parts)
        for part in range(HELD):
            made.running(f"pod-{index:05}-{part}", name, f"mig-{part}", request("gpu", "gpu"))
            made.objects["resourceclaims"][-1]["metadata"]["finalizers"] = [FINALIZER]
    made.pod(_WAITING, request("gpu", "gpu"))
    made.add(resource_claim_template(TEMPLATE, NAMESPACE, request("gpu", "gpu", allocationMode="ExactCount")))
    return made


async def _asked(file: Path, nodes: int) -> dict[str, Any]:
    arguments = ("-m", "tests.bench.see_worker", str(file), NAMESPACE, _WAITING)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await worker.communicate()
    if worker.returncode:
        raise BenchError(f"why over a snapshot: the process ended with {worker.returncode}")
    found: dict[str, Any] = json.loads(output)
    if found["nodes"] != nodes or "shared counters are exhausted" not in found["answer"] or not found["next"]:
        raise BenchError(f"why over a snapshot: another answer than expected: {found['answer'][:500]}")
    if found["verdict"] != "sound" or found["rows"] != nodes * DEVICES:
        raise BenchError(f"over a snapshot: {found['rows']} rows of devices, and {found['findings'][:500]}")
    if not 0 < found["copies"] < ADDED * DEVICES or found["stranded"] != nodes + ADDED:
        raise BenchError(f"what-if over a snapshot: {found['copies']} copies, {found['stranded']} nodes with a rest")
    if f"{nodes * HELD} of {nodes * DEVICES} devices in use" not in found["used"]:
        raise BenchError(f"usage over a snapshot: another answer than expected: {found['used'][:500]}")
    return found
