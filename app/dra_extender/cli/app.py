"""The programs `dra-extender` and `kubectl-dra`.  A module in `cli.commands` is a command; it is imported when the command runs.

A module of a command imports what the command works with inside its function.  So help, version and completion load neither a
Kubernetes client nor anything else that takes long.
"""

import ast
import errno
import functools
import gc
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from dra_extender.cli import commands
from dra_extender.cli.command_help import EXIT_STATUS, HelpfulCommand
from dra_extender.cli.completion import COMPLETE, Shell, answer, script

NAMES: Final = tuple(sorted(module.name.replace("_", "-") for module in iter_modules(commands.__path__)))
"""The commands; a hyphen stands for the underscore in the name of the module."""
OF_THE_SERVICE: Final = frozenset({"answer", "certificates", "config", "serve"})
"""The commands for an administrator who runs the service."""
_FOR_COMPARISON: Final = "answer"
"""The command for those who compare decisions with upstream's; help does not list it."""
PLUGIN_NAMES: Final = tuple(name for name in NAMES if name not in OF_THE_SERVICE)
"""The commands of the plugin of kubectl."""
_SCRIPT_ARGUMENTS: Final = 3
_MOST_COLUMNS: Final = 120
_HELP: Final = ["-h", "--help"]
_REFUSED: Final = 2
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EPIPE})
_CLOSED: Final = 1
_USAGE: Final = "Usage: "
_OBJECTS_BETWEEN_COLLECTIONS: Final = 300_000


class CommandGroup(TyperGroup):
    """Imports the module of the command that runs; help needs only the summaries."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.callback is not None and command.callback.__name__ == _run_by_group.__name__:
            command = _command(cmd_name)
            self.add_command(command, cmd_name)
        return command

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Say what is wrong with a command line in the same way as everything else that is wrong."""
        try:
            status = super().main(*args, **extra, standalone_mode=False)  # type: ignore[misc]  # callers give it by its name
            sys.stdout.flush()
        except typer.TyperException as problem:
            if not standalone_mode:
                raise
            status = _print_error(problem)
        except OSError as problem:
            status = _print_write_error(problem)
        if standalone_mode:
            sys.exit(status or 0)
        return status

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the library calls it
        with formatter.section("Commands"):
            shown = {name: command for name, command in self.commands.items() if not command.hidden}
            formatter.write_dl([(name, command.short_help or "") for name, command in shown.items()])


def _print_error(problem: typer.TyperException) -> int:
    """Print an error, and where the help is if the command line is wrong; or the help, if nothing was asked.  Return the status."""
    from dra_extender.cli.answers import CommandError, complain

    if isinstance(problem, CommandError):
        complain(problem.message)
        return problem.exit_code
    if problem.message.startswith(_USAGE):
        sys.stdout.write(f"{problem.message}\n")
        return 0
    is_ours = isinstance(problem, typer.BadParameter) and problem.param is None
    text = problem.message if is_ours else problem.format_message()
    complain((text if text[1:2].isupper() else text[:1].lower() + text[1:]).replace("Value error, ", "", 1).rstrip("."))
    context = getattr(problem, "ctx", None)
    if context is not None:
        option = getattr(problem, "option_name", "")
        if option and isinstance(context.command, TyperGroup):
            sys.stderr.write(f"Options stand after the command: {context.command_path} COMMAND {option}\n")
        sys.stderr.write(f"See '{context.command_path} --help' for usage.\n")
    return _REFUSED


def _print_write_error(problem: OSError) -> int:
    """Print why the answer cannot be written, unless nobody reads on; return the status.  Raise what is another problem."""
    from dra_extender.cli.answers import complain

    if problem.errno not in _UNWRITABLE:
        raise problem
    # What is left of the answer is not tried again at the exit.
    sys.stdout = None
    if problem.errno == errno.EPIPE:
        return _CLOSED
    complain(f"the answer cannot be written: {problem.strerror}")
    return _REFUSED


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as problem:
        sys.exit(_print_write_error(problem))


def _run_by_group() -> None:
    """Stand for a command in the help of the program; CommandGroup replaces it before it could run."""


def _show_version(*, requested: bool) -> None:
    if requested:
        from dra_extender.runtime.installation import build_version

        typer.echo(f"dra-extender {build_version()}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda requested: _show_version(requested=requested),
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Declare the options of the program itself."""


def _program(name: str, names: Collection[str], about: str) -> typer.Typer:
    program = typer.Typer(
        name=name,
        cls=CommandGroup,
        callback=_options,
        help=about,
        epilog=EXIT_STATUS,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": _HELP, "max_content_width": _columns()},
    )
    for command_name in names:
        hidden = command_name == _FOR_COMPARISON
        program.command(command_name, short_help=_summary(command_name), hidden=hidden)(_run_by_group)
    return program


def _columns() -> int:
    """Return the most columns that help takes."""
    return min(shutil.get_terminal_size().columns, _MOST_COLUMNS)


def _command(name: str) -> Any:
    """Return the command of a module, whose `command` is a function or a group."""
    module: Any = import_module(f"{commands.__name__}.{name.replace('-', '_')}")
    function: Any = module.command
    examples: Any = getattr(module, "EXAMPLES", ())
    if isinstance(function, typer.Typer):
        group: Any = typer.main.get_command(function)
        for below, part in group.commands.items():
            part.examples = examples[below]
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=HelpfulCommand)(function)
    command: Any = typer.main.get_command(single)
    command.examples = examples
    return command


@functools.cache
def _summary(name: str) -> str:
    """Read the first paragraph of the docstring of a command, without importing its module."""
    source = files(commands).joinpath(f"{name.replace('-', '_')}.py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "command")
    return " ".join((ast.get_docstring(next(functions, tree)) or "").partition("\n\n")[0].split())


app: Final = _program(
    "dra-extender", NAMES, "Kubernetes Dynamic Resource Allocation beside an unmodified kube-scheduler."
)
plugin: Final = _program(
    "kubectl-dra", PLUGIN_NAMES, "Why pods wait for devices, what is where, and whether the cluster is sound."
)


def main() -> None:
    _run_program(app, "dra-extender")


def plugin_main() -> None:
    _run_program(plugin, "kubectl dra")


def complete_main() -> None:
    """Run the program `kubectl_complete-dra`, which kubectl asks for completions of `kubectl dra`."""
    _print(answer(typer.main.get_command(plugin), sys.argv[1:]))


def _run_program(program: typer.Typer, name: str) -> None:
    _open_closed_streams()
    if sys.argv[1:2] == [COMPLETE]:
        _print(answer(typer.main.get_command(program), sys.argv[2:]))
    elif len(sys.argv) == _SCRIPT_ARGUMENTS and sys.argv[1] == "completion" and sys.argv[2] in set(Shell):
        _print(script(Shell(sys.argv[2]), name.replace(" ", "-")))
    elif any(word in _HELP for word in sys.argv[1:]):
        _print(_help(typer.main.get_command(program), name, sys.argv[1:]))
    else:
        _set_missing_home()
        collect_rarely()
        program(prog_name=name)


def _open_closed_streams() -> None:
    """Write nowhere where a shell has closed standard output or standard error; Python has none then."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the exit


def _set_missing_home() -> None:
    """Give a user whom the system does not know, such as a random one in a container, the home that container runtimes give.

    The Kubernetes client looks for a home when it is imported, and fails without one.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = os.sep


def collect_rarely() -> None:
    """Let Python look for cyclic garbage less often, because what a command reads lives until its answer is there.

    Commands that go on, such as `ui`, still collect.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def _help(command: Any, name: str, typed: Sequence[str]) -> str:
    """Return the help of the command that was typed; the library would first convert all options, and load pydantic for that."""
    context = typer.Context(command, info_name=name, help_option_names=_HELP, max_content_width=_columns())
    for word in typed:
        subcommand = command.get_command(context, word) if isinstance(command, TyperGroup) else None
        if subcommand is not None:
            command, context = subcommand, typer.Context(subcommand, info_name=word, parent=context)
    text: str = command.get_help(context)
    return f"{text}\n"


if __name__ == "__main__":
    main()
