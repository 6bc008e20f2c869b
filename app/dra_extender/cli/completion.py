"""Completions of the command line, in the protocol of kubectl (that of cobra), and what shells need to ask for them.

The program is asked with everything that was typed; the last word is to be completed.  It answers with a line for each candidate
(the word, a tab, what it is for) and a last line with a directive: `:4` no files, `:0` files too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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
    """A word that may stand there, and what it is for."""

    word: str
    about: str = ""


class _Place(NamedTuple):
    """Where the last word stands: in which command, behind which option that has no value yet, as which argument."""

    command: Any
    option: Any = None
    arguments: int = 0
    options_end: bool = False


def answer(program: Any, typed: Sequence[str], names: NameSource | None = None) -> str:
    """Answer a shell; `program` is its group of commands, the last word is to be completed.

    `names` lists names of objects for a parameter, given the words before it; by default kubectl does.
    """
    if names is None:
        from dra_extender.cli.cluster_names import names_for

        names = names_for
    *before, begun = typed or ("",)
    place = _place(program, before)
    found = [
        each for each in _candidates(place, begun, lambda name: names(name, before)) if each.word.startswith(begun)
    ]
    lines = [f"{each.word}\t{_one_line(each.about)}" if each.about else each.word for each in found]
    return "\n".join((*lines, f":{FILES if _takes_files(place, begun) else NO_FILES}")) + "\n"


def script(shell: Shell, program: str) -> str:
    """Return the script with which a shell completes this program."""
    return _SCRIPTS[shell].replace("PROGRAM", program).replace("FUNCTION", "_" + program.replace("-", "_"))


def _place(program: Any, before: Sequence[str]) -> _Place:
    place = _Place(program)
    for word in before:
        if place.option is not None:
            place = place._replace(option=None)
        elif place.options_end or not word.startswith("-") or word == "-":
            found = _subcommand(place.command, word)
            place = place._replace(arguments=place.arguments + 1) if found is None else _Place(found)
        elif word == "--":
            place = place._replace(options_end=True)
        elif "=" not in word:
            option = _option(place.command, word)
            if option is not None and not option.is_flag:
                place = place._replace(option=option)
    return place


def _candidates(place: _Place, begun: str, names: Callable[[str], Sequence[str]]) -> Iterator[Candidate]:
    if place.option is not None:
        yield from map(Candidate, _choices(place.option) or names(place.option.name))
    elif begun.startswith("-") and not place.options_end:
        name, given, _ = begun.partition("=")
        option = _option(place.command, name) if given else None
        if option is not None:
            yield from (Candidate(f"{name}={each}") for each in _choices(option) or names(option.name))
        else:
            yield from _options(place.command)
    elif _is_group(place.command):
        yield from (
            Candidate(name, each.short_help or each.help or "") for name, each in place.command.commands.items()
        )
    else:
        argument = _argument(place)
        yield from map(Candidate, (_choices(argument) or names(argument.name)) if argument is not None else ())


def _takes_files(place: _Place, begun: str) -> bool:
    if place.option is not None:
        return bool(place.option.type_descriptor.is_path)
    if begun.startswith("-") and not place.options_end:
        return False
    argument = None if _is_group(place.command) else _argument(place)
    descriptor = None if argument is None else argument.type_descriptor
    return descriptor is not None and (descriptor.is_path or "Path" in str(descriptor.annotation))


def _options(command: Any) -> Iterator[Candidate]:
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden:
            for name in (*each.opts, *each.secondary_opts):
                if name.startswith("--"):
                    yield Candidate(name, each.help or "")
    yield Candidate("--help", "Show the help.")


def _option(command: Any, name: str) -> Any:
    for each in command.params:
        if each.param_type_name == "option" and name in (*each.opts, *each.secondary_opts):
            return each
    return None


def _argument(place: _Place) -> Any:
    """Return the argument that the last word is; the last argument of a command may have many words."""
    arguments = [each for each in place.command.params if each.param_type_name == "argument"]
    if place.arguments < len(arguments):
        return arguments[place.arguments]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _choices(parameter: Any) -> Sequence[str]:
    return [str(getattr(each, "value", each)) for each in parameter.type_descriptor.choices or ()]


def _is_group(command: Any) -> bool:
    return bool(getattr(command, "commands", None))


def _subcommand(command: Any, name: str) -> Any:
    return command.get_command(None, name) if _is_group(command) else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


_SCRIPTS: Final[Mapping[Shell, str]] = MappingProxyType(
    {
        Shell.BASH: """\
# Completion of PROGRAM for bash: source <(PROGRAM completion bash)
FUNCTION() {
    local line directive=0 begun="${COMP_WORDS[COMP_CWORD]}"
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    # bash takes --option=value for three words.
    if [[ $begun == "=" ]]; then
        begun=""
        words=("${COMP_WORDS[@]:1:COMP_CWORD-1}" "")
    elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        words=("${COMP_WORDS[@]:1:COMP_CWORD-2}" "$begun")
    fi
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=${line#:} ;;
            "$begun"*) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <(PROGRAM __complete "${words[@]}" 2>/dev/null)
    if [[ $directive == 0 && ${#COMPREPLY[@]} == 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F FUNCTION PROGRAM
""",
        Shell.ZSH: """\
#compdef PROGRAM
# Completion of PROGRAM for zsh: source <(PROGRAM completion zsh)
FUNCTION() {
    local line directive=0
    local -a candidates
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=${line#:} ;;
            *) candidates+=("${${line%%$'\\t'*}//:/\\\\:}${${(M)line%%$'\\t'*}:+:${line#*$'\\t'}}") ;;
        esac
    done < <(PROGRAM __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe -t values PROGRAM candidates
    elif [[ $directive == 0 ]]; then
        _files
    fi
}
compdef FUNCTION PROGRAM
""",
        Shell.FISH: """\
# Completion of PROGRAM for fish: PROGRAM completion fish | source
function FUNCTION
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l lines (PROGRAM __complete $words 2>/dev/null)
    set -l directive 0
    set -l found 0
    for line in $lines
        if string match -qr '^:[0-9]+$' -- $line
            set directive (string sub -s 2 -- $line)
        else
            set found 1
            echo $line
        end
    end
    if test $directive = 0 -a $found = 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c PROGRAM -f -a '(FUNCTION)'
""",
    }
)
