import re
from typing import Final

import msgspec

from app.cel.compile_limits import BYTE_UNITS, TOKEN_UNITS, CompileMeter
from app.cel.errors import CelCompileError

# One alternative decides by the first characters, and every repetition is possessive, so the time is linear in the text.
_TOKENS: Final = re.compile(
    r"""
    (?P<blank>   [\ \t\r\n\f]++ | //[^\n]*+ )
  | (?P<string>  [bB]?+[rR](?: \"{3}(?:[^"]|"(?!""))*+\"{3} | '{3}(?:[^']|'(?!''))*+'{3} | "[^"\r\n]*+" | '[^'\r\n]*+' )
  |              [bB]?+(?: \"{3}(?:[^"\\]|\\[\s\S]|"(?!""))*+\"{3} | '{3}(?:[^'\\]|\\[\s\S]|'(?!''))*+'{3}
                         | "(?:[^"\\\r\n]|\\[^\r\n])*+" | '(?:[^'\\\r\n]|\\[^\r\n])*+' ) )
  | (?P<double>  [0-9]++\.[0-9]++(?:[eE][+-]?+[0-9]++)?+ | [0-9]++[eE][+-]?+[0-9]++ | \.[0-9]++(?:[eE][+-]?+[0-9]++)?+ )
  | (?P<integer> (?:0[xX][0-9a-fA-F]++|[0-9]++)[uU]?+ )
  | (?P<name>    [_a-zA-Z][_a-zA-Z0-9]*+ )
  | (?P<quoted>  `[a-zA-Z0-9_.\-/\ ]++` )
  | (?P<symbol>  && | \|\| | == | != | <= | >= | [-+*/%<>!?:.,()\[\]{}] )
  | (?P<none>    [\s\S] )
    """,
    re.VERBOSE,
)


class Token(msgspec.Struct, frozen=True, gc=False):
    """A word of the expression; `kind` is string, double, integer, name, quoted, symbol or end."""

    kind: str
    text: str
    offset: int


def tokenize(source: str, meter: CompileMeter) -> list[Token]:
    """Split an expression into tokens, the last of kind "end"; what it takes to parse them is charged, too.

    Raises:
        CelCompileError: A character or an unfinished string that no token begins with, or more tokens than can be parsed.
    """
    meter.spend(BYTE_UNITS * len(source))
    tokens = []
    for found in _TOKENS.finditer(source):
        kind = found.lastgroup
        if kind == "blank":
            continue
        if kind is None or kind == "none":
            raise CelCompileError(_complaint(found[0]), source, found.start())
        tokens.append(Token(kind, found[0], found.start()))
    tokens.append(Token("end", "", len(source)))
    meter.spend(TOKEN_UNITS * len(tokens))
    return tokens


def _complaint(character: str) -> str:
    if character in "'\"":
        return "Syntax error: the string is not closed"
    return f"Syntax error: unexpected character {character!r}"
