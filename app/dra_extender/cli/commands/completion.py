import sys
from typing import Annotated

import typer

from dra_extender.cli.completion import Shell, script


def command(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell that will read the script.")]
) -> None:
    """Print the script with which a shell completes this program.

    bash: source <(kubectl-dra completion bash); zsh: source <(kubectl-dra completion zsh); fish: kubectl-dra completion fish |
    source.  kubectl completes `kubectl dra` by itself if kubectl_complete-dra is on the PATH.  Exit status: 0 printed.
    """
    program = context.find_root().info_name or ""
    sys.stdout.write(script(shell, program.replace(" ", "-")))
