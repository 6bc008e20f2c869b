"""How upstream writes a text between double quotes in messages and inside of formatted lists."""

from typing import Final

_SIMPLE: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_DELETE: Final = 0x7F
_BASIC_END: Final = 0x10000
_SPECIALS: Final = str.maketrans(_SIMPLE)


def quoted(text: str, *, plain: bool = False) -> str:
    """The text between quotes; what cannot be printed is spelled out by its number, unless `plain`."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if plain:
        return f'"{text.translate(_SPECIALS)}"'
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in _SIMPLE:
        return _SIMPLE[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < ord(" ") or code == _DELETE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BASIC_END else f"\\U{code:08x}"
