"""Reads a snapshot and asks why a pod waits, what audit, devices and usage say, and how many more of a pod would fit beside more
nodes; prints seconds of CPU as JSON."""

import asyncio
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Final

from dra_extender.cli.app import collect_rarely
from dra_extender.inspection.audit.report import audit_report
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.snapshot_file import read_snapshot
from dra_extender.inspection.text.audit import audit_tree
from dra_extender.inspection.text.devices import devices_csv, usage_tree
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.usage import usage_report
from dra_extender.inspection.what_if.changes import Changes
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.why import why

ADDED: Final = 100
"""Nodes that a trial adds before it counts how many more of a pod fit."""
TEMPLATE: Final = "one"


def main() -> int:
    """Arguments: the file, namespace and name of the pod."""
    path, namespace, pod = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    collect_rarely()
    started = time.process_time()
    objects = read_snapshot(path)
    read = time.process_time()
    view = ClusterView(objects)
    filled = time.process_time()
    report = why(view, namespace, pod)
    text = tree(report)
    ended = time.process_time()
    audit = audit_report(view)
    lines = audit_tree(audit)
    audited = time.process_time()
    devices = devices_report(view)
    rows = devices_csv(devices).count("\n") - 1
    listed = time.process_time()
    usage = usage_tree(usage_report(view))
    summed = time.process_time()
    added = Changes(added=[(next(iter(view.ledger.nodes)), ADDED)])
    filled_up = asyncio.run(what_if(objects, added, (namespace, TEMPLATE))).fill
    tried = time.process_time()
    found = {
        "megabytes": len(gzip.decompress(path.read_bytes())) / 1e6,
        "reading": read - started,
        "why": ended - read,
        "ledger": filled - read,
        "answer": text,
        "nodes": report.nodes,
        "next": len(report.next),
        "audit": audited - ended,
        "verdict": audit.verdict.value,
        "findings": lines,
        "devices": listed - audited,
        "rows": rows,
        "usage": summed - listed,
        "used": usage,
        "fill": tried - summed,
        "copies": 0 if filled_up is None else filled_up.copies,
        "stranded": 0 if filled_up is None else len(filled_up.stranded),
    }
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
