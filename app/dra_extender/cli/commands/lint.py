from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import ExitStatus, complain
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster
from dra_extender.cli.color import painted
from dra_extender.manifests.files import files_in, read_text, title

if TYPE_CHECKING:
    from dra_extender.inspection.objects import ClusterObjects
    from dra_extender.lint.read import LintFile, PlacedFinding
    from dra_extender.model.resource_slice import ResourceSlice

_SLICE: Final = "ResourceSlice"
_SLICES: Final = "resourceslices"


class LintFormat(StrEnum):
    """Formats of findings; `github` are annotations of a workflow of GitHub Actions."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class TargetRelease(StrEnum):
    """Releases whose API servers store slices; the oldest accepts devices beside shared counters."""

    OLDEST = "1.34"
    V1_35 = "1.35"
    V1_36 = "1.36"
    V1_37 = "1.37"


EXAMPLES: Final = (
    "PROGRAM lint manifests/ --strict",
    "kubectl get deviceclasses -o yaml | PROGRAM lint - --live",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Manifests; a folder, or - for standard input.", show_default=False),
    ] = None,
    filenames: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="The same as FILE, as kubectl is given manifests."),
    ] = None,
    output: Annotated[LintFormat, typer.Option("--output", "-o", help="Format of the findings.")] = LintFormat.TEXT,
    kubernetes: Annotated[
        TargetRelease, typer.Option("--kubernetes", help="Release of the API server that slices are for.")
    ] = TargetRelease.V1_37,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Find what fits no node of the running cluster, and names of nothing there."),
    ] = False,
) -> None:
    """Find mistakes in device classes, claims, claim templates, slices, taint rules, pods and what makes pods, and policy files.

    Fields are checked as the API server checks them, slices of a pool against each other, and CEL expressions beyond what
    compiles.  Policies are checked for rules without effect, and with ResourceSlices for neighbours that disagree about each
    other.  With --live, --snapshot or ResourceSlices in the files, lint finds claims that no node there can ever serve.  With
    --live or --snapshot it also finds names of claims, templates, PodGroups and extended resources that do not exist, and changes
    that the API server refuses.  Errors are what the API server refuses or what fails on a device; warnings may not mean what
    their author thinks.  The exit status is 1 if there is an error; with --strict also for a warning.
    """
    from dra_extender.cel.lint.findings import Severity
    from dra_extender.lint import formats
    from dra_extender.lint.lint_files import lint_files
    from dra_extender.lint.read import read_files

    paths = (*(files or ()), *(filenames or ()))
    if not paths:
        raise typer.BadParameter("expected a FILE, a folder, or - for standard input")
    texts, problems = _texts(paths)
    manifests = read_files(texts)
    objects = source.read() if live or source.is_set else None
    report = lint_files(
        manifests,
        beside_counters=kubernetes is TargetRelease.OLDEST,
        of_cluster=() if objects is None else _slices_of(objects),
        further=_cluster_findings(objects, source.namespace, manifests),
    )
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    match output:
        case LintFormat.JSON:
            typer.echo(formats.as_json(report))
        case LintFormat.SARIF:
            from dra_extender.runtime.installation import build_version

            typer.echo(formats.as_sarif(report, build_version()))
        case LintFormat.GITHUB:
            typer.echo(formats.as_github(report))
        case LintFormat.TEXT:
            typer.echo(painted(formats.as_text(report)), color=True)
    for sentence in (*problems, *report.unreadable):
        complain(sentence)
    if problems or report.unreadable:
        raise typer.Exit(ExitStatus.UNKNOWN)
    if errors or (strict and warnings):
        raise typer.Exit(ExitStatus.NEGATIVE)


def _slices_of(objects: "ClusterObjects") -> Iterator["ResourceSlice"]:
    """Yield the slices of a cluster; those that cannot be read are left out."""
    from dra_extender.model.api_json import ModelError
    from dra_extender.model.resource_slice import SliceReader

    reader = SliceReader()
    for data in objects.of_kind(_SLICES):
        with suppress(ModelError):
            yield reader.read(data)


def _cluster_findings(
    objects: "ClusterObjects | None", own_namespace: str | None, files: "Sequence[LintFile]"
) -> Iterator["PlacedFinding"]:
    """Yield names that do not exist, and claims that fit no node, in the cluster or otherwise among the objects of all files."""
    from dra_extender.inspection.never_fits import never_fits
    from dra_extender.inspection.unknown_names import unknown_names
    from dra_extender.simulator.apiserver.objects import NAMESPACE

    namespace = objects.namespace if objects is not None else own_namespace or NAMESPACE
    yield from unknown_names(objects, files, namespace)
    if objects is not None or any(_SLICE in file.text for file in files):
        yield from never_fits(objects, files, namespace)


def _texts(files: Sequence[Path]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return names and texts of the readable files, and a sentence for each of the others."""
    texts: list[tuple[str, str]] = []
    problems: list[str] = []
    for file in files:
        try:
            inside = files_in(file)
            if not inside:
                problems.append(f"{title(file)}: the folder has no *.yaml or *.yml")
            texts.extend((title(path), read_text(path)) for path in inside)
        except UnicodeDecodeError:
            problems.append(f"{title(file)}: cannot be read: it is not UTF-8 text")
        except OSError as problem:
            problems.append(f"{title(file)}: cannot be read: {problem.strerror}")
    return texts, problems
