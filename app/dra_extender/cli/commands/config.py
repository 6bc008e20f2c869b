"""Settings of the service, and the kube-scheduler configuration that fits them."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from dra_extender.cli.answers import CommandError, ExitStatus, ProgramFormat
from dra_extender.cli.command_help import HelpfulCommand
from dra_extender.config.scheduler_checks import check
from dra_extender.config.scheduler_configuration import SchedulerSetup, read_configuration, render
from dra_extender.config.settings import InvalidSettingsError, Settings, load_settings
from dra_extender.manifests.files import title

_DEFAULTS: Final = SchedulerSetup()
_HEAD: Final = (
    "# Made by `dra-extender config scheduler`; docs/reference/kube-scheduler.md has the reason of each line.\n"
)

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "scheduler": (
        "PROGRAM config scheduler > scheduler.yaml",
        "PROGRAM config scheduler --url https://dra-extender:8443 --ca-file /etc/dra-extender/ca.crt",
    ),
    "check": ("PROGRAM config check scheduler.yaml", "PROGRAM config scheduler | PROGRAM config check -"),
    "settings": ("PROGRAM config settings", "PROGRAM config settings --config settings.yaml -o json"),
}

command = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

SettingsFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings of the service in YAML, below the environment."),
]


class DocumentFormat(StrEnum):
    """Text formats of a document."""

    YAML = "yaml"
    JSON = "json"


@command.command("scheduler", cls=HelpfulCommand)
def scheduler(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where kube-scheduler finds the service; default: the configured port of 127.0.0.1."
        ),
    ] = None,
    scheduler_name: Annotated[
        str,
        typer.Option(
            "--scheduler-name",
            metavar="NAME",
            help="What pods put into spec.schedulerName; also the name of its Lease.",
        ),
    ] = _DEFAULTS.scheduler_name,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the Lease by which one kube-scheduler is active.")
    ] = _DEFAULTS.namespace,
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file", metavar="FILE", help="With an https URL: where kube-scheduler finds the certificate authority."
        ),
    ] = None,
    client_certificate: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="CERT KEY", help="With an https URL: where kube-scheduler finds its own certificate and its key."
        ),
    ] = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            "--server-name", metavar="NAME", help="Name in the certificate, if it differs from the host in the URL."
        ),
    ] = None,
    config: SettingsFile = None,
    output: Annotated[DocumentFormat, typer.Option("--output", "-o", help="Format.")] = DocumentFormat.YAML,
) -> None:
    """Print the KubeSchedulerConfiguration for a kube-scheduler that calls this service.

    Time limits come from the settings of the service (scheduling.binding_timeout_seconds), so that both ends agree.
    """
    settings = _settings(config)
    if url is not None and url.startswith("https://") and ca_file is None:
        raise typer.BadParameter(
            f"--url {url} needs --ca-file, the certificate authority that kube-scheduler trusts: without one it believes any "
            "certificate"
        )
    setup = SchedulerSetup(
        url=(url or f"http://127.0.0.1:{settings.server.port}").rstrip("/"),
        scheduler_name=scheduler_name,
        namespace=namespace,
        binding_timeout=settings.scheduling.binding_timeout_seconds,
        authority=ca_file,
        server_name=server_name,
        client_certificate=client_certificate,
    )
    document = render(setup)
    for problem in check(document, settings):
        raise typer.BadParameter(str(problem))
    typer.echo(_HEAD + _yaml(document) if output is DocumentFormat.YAML else json.dumps(document, indent=2), nl=False)
    if output is DocumentFormat.JSON:
        typer.echo()


@command.command("check", cls=HelpfulCommand)
def check_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A KubeSchedulerConfiguration, or manifests with a ConfigMap that holds one; - for standard input.",
            show_default=False,
        ),
    ],
    config: SettingsFile = None,
    output: Annotated[
        ProgramFormat, typer.Option("--output", "-o", help="Format of the findings.")
    ] = ProgramFormat.TEXT,
) -> None:
    """Say what in a KubeSchedulerConfiguration would not work with this service and its settings.

    The exit status is 1 if there is something.
    """
    settings = _settings(config)
    try:
        configuration = read_configuration(file)
    except InvalidSettingsError as unreadable:
        raise CommandError(unreadable, ExitStatus.UNKNOWN) from unreadable
    problems = check(configuration.value, settings)
    if output is ProgramFormat.JSON:
        rows = [
            {"field": problem.field, "line": configuration.line_of(problem.field), "sentence": problem.sentence}
            for problem in problems
        ]
        typer.echo(json.dumps({"problems": rows}, indent=2))
    else:
        for problem in problems:
            typer.echo(f"{title(file)}:{configuration.line_of(problem.field)}: {problem}")
        typer.echo(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}")
    raise typer.Exit(ExitStatus.NEGATIVE if problems else 0)


@command.command("settings", cls=HelpfulCommand)
def show_settings(
    config: SettingsFile = None,
    output: Annotated[DocumentFormat, typer.Option("--output", "-o", help="Format.")] = DocumentFormat.YAML,
) -> None:
    """Print the settings in force: the environment over the file over the defaults."""
    values = _settings(config).model_dump(mode="json")
    typer.echo(_yaml(values).rstrip() if output is DocumentFormat.YAML else json.dumps(values, indent=2))


def _settings(file: Path | None) -> Settings:
    try:
        return load_settings(file)
    except InvalidSettingsError as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, default_flow_style=False)
    return text
