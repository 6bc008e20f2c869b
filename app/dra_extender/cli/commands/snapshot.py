import sys
from pathlib import Path
from typing import Annotated

import typer

from dra_extender.cli.cluster_source import EXIT_USAGE, Context, Impersonate, Kubeconfig, ended, read_objects
from dra_extender.inspection.snapshot_file import SnapshotFileError, write_snapshot


def command(
    file: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write, e.g. cluster.tar.gz.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    impersonate: Impersonate = "",
) -> None:
    """Write the objects of a cluster to a file, with the fields that scheduling decisions read and no others.

    Exit status: 0 written; 2 the cluster cannot be read, or the file not written.
    """
    objects = read_objects(None, kubeconfig, context, impersonate)
    try:
        size = write_snapshot(objects, file)
    except SnapshotFileError as problem:
        raise ended(problem, EXIT_USAGE) from problem
    counts = ", ".join(f"{len(found)} {kind}" for kind, found in objects.by_kind.items() if found)
    sys.stdout.write(f"{file}: {counts or 'no objects'} ({size} bytes)\n")
