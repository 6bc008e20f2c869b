"""The tokens of an expression, and the values of the tokens that are numbers and strings."""

import re
from typing import Final

import msgspec

from dra_extender.cel.budget import BYTE_UNITS, TOKEN_UNITS, CompileMeter
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.values.go_format import ESCAPES, SURROGATES
from dra_extender.cel.values.integers import MAX_INT, MAX_UINT, MIN_INT, Uint

# One alternative decides by the first characters, and what a repetition gives back matches nothing else, so the time is linear in
# the text.
_TOKENS: Final = re.compile(
    r"""
    (?: [\ \t\r\n\f]++ | //[^\n]*+ )* (?! [\ \t\r\n\f] | // )
  (?:
    (?P<name>    (?![bB]?+[rR]?+["']) [_a-zA-Z][_a-zA-Z0-9]*+ )
  | (?P<symbol>  && | \|\| | == | != | <= | >= | [-+*/%<>!?:,()\[\]{}] | \.(?![0-9]) )
  | (?P<string>  [bB]?+[rR](?: \"{3}(?:[^"]|"(?!""))*\"{3} | '{3}(?:[^']|'(?!''))*'{3} | "[^"\r\n]*+" | '[^'\r\n]*+' )
  |              [bB]?+(?: \"{3}(?:[^"\\]|\\[\s\S]|"(?!""))*\"{3} | '{3}(?:[^'\\]|\\[\s\S]|'(?!''))*'{3}
                         | "(?:[^"\\\r\n]|\\[^\r\n])*" | '(?:[^'\\\r\n]|\\[^\r\n])*' ) )
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
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]?))",
)
_SIMPLE: Final = {
    **{escape[1]: character for character, escape in ESCAPES.items()},
    **{character: character for character in "?\"'`"},
}
_QUOTES: Final = frozenset("\"'")
_LONGEST_INTEGER: Final = 100
_UNICODE_END: Final = 0x110000


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token; `kind` is string, double, integer, name, quoted, symbol or end."""

    kind: str
    text: str
    offset: int


def tokenize(source: str, meter: CompileMeter) -> list[Token]:
    """Split an expression into tokens, the last of kind "end"; reading and parsing them is charged."""
    meter.spend(BYTE_UNITS * len(source))
    tokens = []
    for match in _TOKENS.finditer(source):
        group = match.lastindex or _NONE
        if group == _NONE:
            place = match.end() - 1
            wrong = (
                "the string is not closed" if source[place] in _QUOTES else f"unexpected character {source[place]!r}"
            )
            raise CelCompileError(f"Syntax error: {wrong}", source, place)
        tokens.append(Token(_KINDS[group], match[group], match.start(group)))
        if group == _END:
            break
    meter.spend(TOKEN_UNITS * len(tokens))
    return tokens


def integer_value(text: str, *, negative: bool) -> int | Uint:
    """Return the value of an integer token, "12", "0x1F" or "12u"; one beyond 64 bits is a ValueError that says so."""
    digits = text.rstrip("uU")
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError("invalid int literal: it does not fit into 64 bits")
    value = int(digits, 16 if digits[:2] in {"0x", "0X"} else 10)
    value = -value if negative else value
    if digits != text:
        if not 0 <= value <= MAX_UINT:
            raise ValueError("invalid uint literal: it does not fit into 64 bits")
        return Uint(value)
    if not MIN_INT <= value <= MAX_INT:
        raise ValueError("invalid int literal: it does not fit into 64 bits")
    return value


def string_value(token: str) -> str | bytes:
    """Return the value of a string token; a wrong escape sequence is a ValueError that says so."""
    quote = token[0]
    if quote in _QUOTES and "\\" not in token and "\r" not in token and not token.startswith(quote, 1, -1):
        return token[1:-1]
    opening = min(position for position in (token.find('"'), token.find("'")) if position >= 0)
    prefix = token[:opening].lower()
    width = 3 if len(token) - opening >= 6 and token[opening : opening + 3] == token[opening] * 3 else 1  # noqa: PLR2004 - two triple quotes
    body = token[opening + width : len(token) - width].replace("\r\n", "\n").replace("\r", "\n")
    if "b" in prefix:
        return body.encode() if "r" in prefix or "\\" not in body else _unescape_bytes(body)
    if "r" in prefix or "\\" not in body:
        return body
    return _ESCAPE.sub(_text_escape, body)


def _text_escape(match: re.Match[str]) -> str:
    simple, hexadecimal, short, long, octal, wrong = match.groups()
    if simple is not None:
        return _SIMPLE[simple]
    if wrong is not None:
        raise ValueError(f"invalid escape sequence {match.group()!r} in a string")
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code >= _UNICODE_END or code in SURROGATES:
        raise ValueError(f"the escape sequence {match.group()!r} is no Unicode character")
    return chr(code)


def _unescape_bytes(body: str) -> bytes:
    parts = []
    end = 0
    for match in _ESCAPE.finditer(body):
        simple, hexadecimal, _, _, octal, _ = match.groups()
        parts.append(body[end : match.start()].encode())
        end = match.end()
        if simple is not None:
            parts.append(_SIMPLE[simple].encode())
        elif hexadecimal or octal:
            parts.append(bytes((int(hexadecimal, 16) if hexadecimal else int(octal, 8),)))
        else:
            raise ValueError(f"invalid escape sequence {match.group()!r} in bytes")
    parts.append(body[end:].encode())
    return b"".join(parts)
