from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from dra_extender.cli.answers import CommandError, ExitStatus
from dra_extender.config.settings import InvalidSettingsError, load_settings
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.runtime.installation import run_in_new_loop
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.service.server import ListenError
from dra_extender.service.wiring import serve
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

EXAMPLES: Final = (
    "PROGRAM serve --config settings.yaml",
    "PROGRAM serve --kubeconfig ~/.kube/config --log-format text",
)


def command(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in YAML, below environment and flags.")
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Default: $KUBECONFIG, else the pod's service account, else ~/.kube/config."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current context.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address on which the verbs are served; default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on; default: 8080, 0 chooses a free one.")
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="json for machines (default), text for people.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="Leave out messages below this; default: info.")] = None,
) -> None:
    """Answer kube-scheduler until SIGTERM or SIGINT.

    Settings come from flags, else from the environment (DRA_EXTENDER_SERVER__PORT and so on), else from the file, else they have
    their defaults.
    """
    flags = {
        "server": _without_none(host=host, port=port),
        "cluster": _without_none(kubeconfig=kubeconfig, context=context),
        "log": _without_none(format=log_format, level=log_level),
    }
    try:
        settings = load_settings(config, flags)
    except InvalidSettingsError as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem
    configure_logging(settings.log.format, settings.log.level)
    try:
        run_in_new_loop(serve(settings))
    except (InvalidSettingsError, ConfigurationError, ClusterError, ListenError) as problem:
        raise _failed(problem, settings.log.format) from problem


def _without_none(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _failed(problem: Exception, log_format: LogFormat) -> Exception:
    """Write the last line of the log in its format, because programs read it."""
    if log_format is not LogFormat.JSON:
        return CommandError(problem, ExitStatus.UNKNOWN)
    structlog.get_logger(__name__).critical("stopped", err=str(problem), exit_status=int(ExitStatus.UNKNOWN))
    return typer.Exit(ExitStatus.UNKNOWN)
