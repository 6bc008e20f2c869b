"""Completions of the command line, in the protocol of kubectl (that of cobra), and what shells need to ask for them.

The program is asked with everything that was typed; the last word is to be completed.  It answers with a line for each candidate
(the word, a tab, what it is for) and a last line with a directive: `:4` no files, `:0` files too.

Typer's own completion is not used: it does not speak the protocol in which kubectl asks plugins, imports every command and pydantic
for an answer, which takes twice as long, offers `--output=j` the value without its option, and has its classes in private modules.

Names of pods, nodes and namespaces are those that kubectl lists.  kubectl is asked because it starts in a fraction of the time that
a client of Python takes, and has its own login.  Without kubectl on the PATH, and where it does not answer in time, there are none.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dra_extender.cli.command_help import CLUSTER_PANEL

COMPLETE: Final = "__complete"
"""The first argument with which a shell asks."""
NO_FILES: Final = 4
FILES: Final = 0


NameSource = Callable[[str, Sequence[str]], Sequence[str]]


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class Candidate(NamedTuple):
    """A word that may complete the command line, and its purpose."""

    word: str
    about: str = ""


class _Place(NamedTuple):
    """The place of the last word: its command, the option before it that has no value yet, and the number of its argument."""

    command: Any
    option: Any = None
    arguments: int = 0
    options_end: bool = False


SECONDS: Final = 2.0
"""As long as kubectl may take."""
MOST_NAMES: Final = 1_000
_MOST_CHARACTERS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@:/-]{0,251}[A-Za-z0-9])?\Z")
_PODS: Final = ("get", "pods", "--output=name")
_WAITING: Final = (*_PODS, "--field-selector=status.phase=Pending")
_NODES: Final = ("get", "nodes", "--output=name")
_OF_PARAMETER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pod": _WAITING,
        "without": _PODS,
        "evict": _PODS,
        "fill": _PODS,
        "claim": ("get", "resourceclaims", "--output=name"),
        "node": _NODES,
        "drain": _NODES,
        "namespace": ("get", "namespaces", "--output=name"),
        "context": ("config", "get-contexts", "--output=name"),
    }
)
"""What kubectl is asked for the values of a parameter of this name."""
_SNAPSHOT: Final = "snapshot"
_OURS: Final = frozenset({"all_namespaces", "extender_url", "request_timeout", "snapshot_limit"})
"""Options for reading a cluster that kubectl is not given."""


def names_for(parameter: str, options: Sequence[str]) -> Sequence[str]:
    """Ask kubectl for names that may stand for the parameter, with these options."""
    query = _OF_PARAMETER.get(parameter)
    program = None if query is None else shutil.which("kubectl")
    if query is None or program is None:
        return ()
    timeout = () if query[0] == "config" else (f"--request-timeout={SECONDS:g}s",)
    command = [program, *query, *timeout, *options]
    try:
        process = subprocess.run(  # noqa: S603 - kubectl of the person who types, and no shell between
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ()
    lines = process.stdout[:_MOST_CHARACTERS].decode(errors="replace").splitlines() if process.returncode == 0 else []
    names = (line.partition("/")[2] if query[0] == "get" else line for line in lines)
    return [name for name in names if _NAME.match(name)][:MOST_NAMES]


def _cluster_options(command: Any, typed: Sequence[str]) -> list[str] | None:
    """Return the options of kubectl for the cluster that is meant, each with its value in one word; None for a snapshot."""
    options: list[str] = []
    for place, word in enumerate(typed):
        name, equals, value = word.partition("=")
        option = _option(command, name)
        if getattr(option, "rich_help_panel", None) != CLUSTER_PANEL or option.name in _OURS:
            continue
        if option.name == _SNAPSHOT:
            return None
        text = value if equals else next(iter(typed[place + 1 :]), "")
        if option.is_flag:
            options.append(word)
        elif text:
            options.append(f"{option.opts[0]}={text}")
    return options


def answer(program: Any, typed: Sequence[str], names: NameSource = names_for) -> str:
    """Answer a shell; `program` is its group of commands, the last word is to be completed.

    `names` lists names of objects for a parameter, given kubectl's options for the cluster.
    """
    *before, word = typed or ("",)
    place = _place(program, before)

    def names_of(parameter: str) -> Sequence[str]:
        options = _cluster_options(place.command, before)
        return () if options is None else names(parameter, options)

    candidates = [candidate for candidate in _candidates(place, word, names_of) if candidate.word.startswith(word)]
    lines = [
        f"{candidate.word}\t{' '.join(candidate.about.split())}" if candidate.about else candidate.word
        for candidate in candidates
    ]
    return "\n".join((*lines, f":{FILES if _takes_files(place, word) else NO_FILES}")) + "\n"


def script(shell: Shell, program: str) -> str:
    template = files("dra_extender.cli").joinpath("scripts", f"completion.{shell}").read_text(encoding="utf-8")
    return template.replace("PROGRAM", program).replace("FUNCTION", "_" + program.replace("-", "_"))


def _place(program: Any, before: Sequence[str]) -> _Place:
    place = _Place(program)
    for word in before:
        if place.option is not None:
            place = place._replace(option=None)
        elif place.options_end or not word.startswith("-") or word == "-":
            subcommand = place.command.get_command(None, word) if _is_group(place.command) else None
            place = place._replace(arguments=place.arguments + 1) if subcommand is None else _Place(subcommand)
        elif word == "--":
            place = place._replace(options_end=True)
        elif "=" not in word:
            option = _option(place.command, word)
            if option is not None and not option.is_flag:
                place = place._replace(option=option)
    return place


def _candidates(place: _Place, word: str, names: Callable[[str], Sequence[str]]) -> Iterator[Candidate]:
    if place.option is not None:
        yield from map(Candidate, _choices(place.option) or names(place.option.name))
    elif word.startswith("-") and not place.options_end:
        name, equals, _ = word.partition("=")
        option = _option(place.command, name) if equals else None
        if option is not None:
            yield from (Candidate(f"{name}={value}") for value in _choices(option) or names(option.name))
        else:
            yield from _options(place.command)
    elif _is_group(place.command):
        yield from (
            Candidate(name, command.short_help or command.help or "")
            for name, command in place.command.commands.items()
        )
    else:
        argument = _argument(place)
        yield from map(Candidate, (_choices(argument) or names(argument.name)) if argument is not None else ())


def _takes_files(place: _Place, word: str) -> bool:
    if place.option is not None:
        return bool(place.option.type_descriptor.is_path)
    if word.startswith("-") and not place.options_end:
        return False
    argument = None if _is_group(place.command) else _argument(place)
    descriptor = None if argument is None else argument.type_descriptor
    return descriptor is not None and (descriptor.is_path or "Path" in str(descriptor.annotation))


def _options(command: Any) -> Iterator[Candidate]:
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            for name in (*param.opts, *param.secondary_opts):
                if name.startswith("--"):
                    yield Candidate(name, param.help or "")
    yield Candidate("--help", "Show the help.")


def _option(command: Any, name: str) -> Any:
    for param in command.params:
        if param.param_type_name == "option" and name in (*param.opts, *param.secondary_opts):
            return param
    return None


def _argument(place: _Place) -> Any:
    """Return the argument that the last word is; the last argument of a command may have many words."""
    arguments = [param for param in place.command.params if param.param_type_name == "argument"]
    if place.arguments < len(arguments):
        return arguments[place.arguments]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _choices(parameter: Any) -> Sequence[str]:
    return [str(getattr(choice, "value", choice)) for choice in parameter.type_descriptor.choices or ()]


def _is_group(command: Any) -> bool:
    return bool(getattr(command, "commands", None))
