import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from dra_extender.cli.answers import CommandError, ExitStatus
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster

EXAMPLES: Final = (
    "PROGRAM snapshot -o cluster.tar.gz --redact",
    "PROGRAM snapshot --snapshot cluster.tar.gz --redact -o redacted.tar.gz",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    file: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write, e.g. cluster.tar.gz; - for standard output."
        ),
    ],
    redact: Annotated[bool, typer.Option("--redact", help="Give every name another one, and drop sentences.")] = False,
) -> None:
    """Write the objects of a cluster to a file, with the fields that scheduling decisions read and no others.

    --redact replaces every name by a random name, drawn anew for each file, and keeps the order of the names.  So answers about
    the file are the answers about the cluster, with other names.  Values that a selector looks into stay; the command lists them.
    """
    from random import SystemRandom

    from dra_extender.inspection.objects import KINDS, require_any, unknown_text, unread
    from dra_extender.inspection.redaction.names import UnorderableNameError
    from dra_extender.inspection.redaction.redact import redacted
    from dra_extender.inspection.snapshot_file import STDOUT, SnapshotFileError, write_snapshot
    from dra_extender.model.api_json import ModelError, printable

    objects, stayed = source.read(explaining=True), tuple[str, ...]()
    require_any(objects.origin)
    try:
        if redact:
            objects, stayed, _ = redacted(objects, SystemRandom())
        size = write_snapshot(objects, file)
    except (SnapshotFileError, UnorderableNameError, ModelError) as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem
    # Standard output may have the snapshot.
    stream, name = (sys.stderr, "standard output") if file == STDOUT else (sys.stdout, str(file))
    counts = ", ".join(f"{len(items)} {kind}" for kind, items in objects.by_kind.items() if items)
    missing = unread(objects.origin, KINDS)
    if missing:
        stream.write(f"not in the file: {printable(unknown_text(missing))}\n")
    stream.write(f"{name}: {counts or 'no objects'} ({size} bytes)\n")
    if redact:
        listed = "".join(f"  {printable(name)}\n" for name in stayed) or "  nothing\n"
        stream.write(f"stays, because a selector looks into it:\n{listed}")
