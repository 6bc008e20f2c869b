"""The command line.  Each further command is a module of this package, whose `register` adds it here."""

import json
import platform
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dra_extender.cli.commands import answer as cli_answer
from dra_extender.cli.commands import config as cli_config
from dra_extender.cli.commands import demo as cli_demo
from dra_extender.cli.commands import lint as cli_lint
from dra_extender.config.settings import InvalidSettingsError, load_settings
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.service.http_server import ListenError
from dra_extender.service.wiring import run
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging
from dra_extender.telemetry.metrics import build_version

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

app = typer.Typer(
    name="dra-extender",
    help="Kubernetes Dynamic Resource Allocation beside an unmodified kube-scheduler.",
    epilog="Exit status: 0 done, or stopped on request; 1 it could not be done; 2 a flag, a setting or a file cannot be used.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in YAML, below environment and flags.")
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="Default: $KUBECONFIG, else the pod's service account, else ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: 0.0.0.0.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; default: 8080, 0 chooses a free one.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="json for machines (default), text for people.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="Leave out messages below this; default: info.")] = None,
) -> None:
    """Answer kube-scheduler until SIGTERM or SIGINT.

    Settings come from flags, else from the environment (DRA_EXTENDER_SERVER__PORT and so on), else from the file, else they have
    their defaults.  Exit status: 0 stopped on request; 1 the API server does not answer or refuses, or the address is taken;
    2 a flag, a setting, the settings file or the kubeconfig cannot be used.
    """
    flags = {
        "server": _given(host=host, port=port),
        "cluster": _given(kubeconfig=kubeconfig, context=context),
        "log": _given(format=log_format, level=log_level),
    }
    try:
        settings = load_settings(config, flags)
        configure_logging(settings.log.format, settings.log.level)
        run(settings)
    except (InvalidSettingsError, ConfigurationError) as problem:
        raise _failed(problem, EXIT_USAGE) from problem
    except (ClusterError, ListenError) as problem:
        raise _failed(problem, EXIT_FAILED) from problem


@app.command()
def version(*, as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False) -> None:
    """Show what is installed."""
    facts = {"version": build_version(), "python": platform.python_version()}
    typer.echo(json.dumps(facts) if as_json else f"dra-extender {facts['version']} (Python {facts['python']})")


cli_demo.register(app)
cli_answer.register(app)
cli_lint.register(app)
cli_config.register(app)


def main() -> None:
    """The program `dra-extender`."""
    app()


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _failed(problem: Exception, status: int) -> typer.Exit:
    sys.stderr.write(f"dra-extender: {problem}\n")
    return typer.Exit(status)


if __name__ == "__main__":
    main()
