"""The program `dra-extender`.  A module in `cli.commands` is a command; it is imported when the command runs."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

import typer
from typer.core import TyperGroup

from dra_extender.cli import commands

NAMES: Final = tuple(sorted(each.name.replace("_", "-") for each in iter_modules(commands.__path__)))
"""The commands; a hyphen stands for the underscore in the name of the module."""


class CommandGroup(TyperGroup):
    """Imports the module of the command that runs; help needs the summaries alone."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See TyperGroup."""
        if args[0] in NAMES:
            self.add_command(_command(args[0]), args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="dra-extender",
    cls=CommandGroup,
    help="Kubernetes Dynamic Resource Allocation beside an unmodified kube-scheduler.",
    epilog="Exit status: 0 done, or stopped on request; 1 it could not be done; 2 a flag, a setting or a file cannot be used.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the program."""
    app()


def _command(name: str) -> Any:
    """The command of a module, whose `command` is a function or a group."""
    found: Any = import_module(_module(name)).command
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    return typer.main.get_command(found)


def _module(name: str) -> str:
    return f"{commands.__name__}.{name.replace('-', '_')}"


def _summary(name: str) -> str:
    """The first paragraph of the docstring of a command, read without importing its module."""
    spec = find_spec(_module(name))
    tree = ast.parse(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))
    functions = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "command")
    return (ast.get_docstring(next(functions, tree)) or "").partition("\n\n")[0]


def _run_by_group() -> None:
    """Stands for a command in the help of the program; CommandGroup replaces it before it could run."""


for _name in NAMES:
    app.command(_name, help=_summary(_name))(_run_by_group)


if __name__ == "__main__":
    main()
