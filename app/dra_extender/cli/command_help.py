"""How the help of a command looks: its usage, what its arguments and options take, examples, and what its exit status means."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from typer.core import TyperArgument, TyperCommand

EXIT_STATUSES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "answered, done, or stopped on request",
        1: "the answer is bad news: what was asked about does not exist, or a check found something",
        2: "no answer: the command line, a setting or a file cannot be used, a port is taken, or the cluster cannot be read or "
        "changed",
        130: "stopped by Ctrl+C before there was an answer",
    }
)
"""What the exit status of each command means."""
EXIT_STATUS: Final = f"Exit status: {'; '.join(f'{status} {meaning}' for status, meaning in EXIT_STATUSES.items())}."
PROGRAM: Final = "PROGRAM"
"""Stands in examples for the program as it was called."""
CLUSTER_PANEL: Final = "Options for reading a cluster"
"""The section of the options that say which cluster or snapshot is asked."""
_FLAG_VALUES: Final[Mapping[str, bool]] = MappingProxyType({"true": True, "false": False})
_CHOICES: Final = re.compile(r"<([^<>]+\|[^<>]+)>")


class HelpfulCommand(TyperCommand):
    """A command whose help has examples, and names what arguments and options take in the words of the field."""

    examples: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take a flag with its value behind it, as kubectl does: `--all-namespaces=true`."""
        flags = {name for param in self.params if getattr(param, "is_flag", False) for name in param.opts}
        words: list[str] = []
        for place, word in enumerate(args):
            name, _, value = word.partition("=")
            if "--" in args[:place] or name not in flags or value not in _FLAG_VALUES:
                words.append(word)
            elif _FLAG_VALUES[value]:
                words.append(name)
        return super().parse_args(ctx, words)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        return [
            self.options_metavar or "",
            *(shown_name(param) if param.required else f"[{shown_name(param)}]" for param in arguments),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], CLUSTER_PANEL: []}
        for param in self.get_params(ctx):
            record = help_record(param, ctx)
            if record is not None:
                is_argument = isinstance(param, TyperArgument)
                sections["Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Options"].append(
                    record
                )
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(
                        f"{'':>{formatter.current_indent}}{called(example, ctx.find_root().info_name or '')}\n"
                    )
        formatter.write_paragraph()
        formatter.write_text(EXIT_STATUS)


def called(example: str, program: str) -> str:
    return example.replace(PROGRAM, program)


def shown_name(argument: TyperArgument) -> str:
    """Return what an argument takes, such as `POD` or `FILE...`."""
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.nargs == 1 or name.endswith("...") else f"{name}..."


def help_record(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return the names of an option with what it takes, or what an argument is, and what it is for; None if it is hidden."""
    record: tuple[str, str] | None = parameter.get_help_record(ctx)
    if record is None:
        return None
    names, about = record
    if isinstance(parameter, TyperArgument):
        return shown_name(parameter), about
    return _CHOICES.sub(r"\1", names), about
