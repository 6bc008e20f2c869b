import sys
from typing import Annotated, Final

import typer

from dra_extender.cli.completion import Shell, script

EXAMPLES: Final = (
    "source <(PROGRAM completion bash)",
    "PROGRAM completion fish | source",
)


def command(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell that will read the script: bash, zsh or fish.")],
) -> None:
    """Print the script with which a shell completes this program.

    bash: source <(kubectl-dra completion bash); zsh: source <(kubectl-dra completion zsh); fish: kubectl-dra completion fish |
    source.  kubectl completes `kubectl dra` by itself if kubectl_complete-dra is on the PATH.
    """
    program = context.find_root().info_name or ""
    sys.stdout.write(script(shell, program.replace(" ", "-")))
