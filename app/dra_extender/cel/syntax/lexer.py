import re
from typing import Final

import msgspec

from dra_extender.cel.runtime.compile_limits import BYTE_UNITS, TOKEN_UNITS, CompileMeter
from dra_extender.cel.support.errors import CelCompileError

# One alternative decides by the first characters, and every repetition is possessive, so the time is linear in the text.
_TOKENS: Final = re.compile(
    r"""
    (?: [\ \t\r\n\f]++ | //[^\n]*+ )*+
  (?:
    (?P<name>    (?![bB]?+[rR]?+["']) [_a-zA-Z][_a-zA-Z0-9]*+ )
  | (?P<symbol>  && | \|\| | == | != | <= | >= | [-+*/%<>!?:,()\[\]{}] | \.(?![0-9]) )
  | (?P<string>  [bB]?+[rR](?: \"{3}(?:[^"]|"(?!""))*+\"{3} | '{3}(?:[^']|'(?!''))*+'{3} | "[^"\r\n]*+" | '[^'\r\n]*+' )
  |              [bB]?+(?: \"{3}(?:[^"\\]|\\[\s\S]|"(?!""))*+\"{3} | '{3}(?:[^'\\]|\\[\s\S]|'(?!''))*+'{3}
                         | "(?:[^"\\\r\n]|\\[^\r\n])*+" | '(?:[^'\\\r\n]|\\[^\r\n])*+' ) )
  | (?P<double>  [0-9]++\.[0-9]++(?:[eE][+-]?+[0-9]++)?+ | [0-9]++[eE][+-]?+[0-9]++ | \.[0-9]++(?:[eE][+-]?+[0-9]++)?+ )
  | (?P<integer> (?:0[xX][0-9a-fA-F]++|[0-9]++)[uU]?+ )
  | (?P<quoted>  `[a-zA-Z0-9_.\-/\ ]++` )
  | (?P<end>     \Z )
  | (?P<none>    [bB]?+[rR]?+["'] | [\s\S] )
  )
    """,
    re.VERBOSE,
)
_KINDS: Final = {place: name for name, place in _TOKENS.groupindex.items()}
_END: Final = _TOKENS.groupindex["end"]
_NONE: Final = _TOKENS.groupindex["none"]


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token; `kind` is string, double, integer, name, quoted, symbol or end."""

    kind: str
    text: str
    offset: int


def tokenize(source: str, meter: CompileMeter) -> list[Token]:
    """Split an expression into tokens, the last of kind "end"; reading and parsing them is charged.

    Raises:
        CelCompileError: A character or an unfinished string that no token begins with, or more tokens than can be parsed.
    """
    meter.spend(BYTE_UNITS * len(source))
    tokens = []
    for found in _TOKENS.finditer(source):
        group = found.lastindex or _NONE
        if group == _NONE:
            place = found.end() - 1
            raise CelCompileError(_complaint(source[place]), source, place)
        tokens.append(Token(_KINDS[group], found[group], found.start(group)))
        if group == _END:
            break
    meter.spend(TOKEN_UNITS * len(tokens))
    return tokens


def _complaint(character: str) -> str:
    if character in "'\"":
        return "Syntax error: the string is not closed"
    return f"Syntax error: unexpected character {character!r}"
