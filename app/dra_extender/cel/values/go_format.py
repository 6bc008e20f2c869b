"""Texts as Go writes them: strings between quotes (strconv.Quote), and doubles (strconv.FormatFloat with the format g)."""

import math
from typing import Final

ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}
"""Characters that Go and CEL write as a backslash and a letter; a quote is escaped beside them where it ends the text."""
SURROGATES: Final = range(0xD800, 0xE000)
_IN_QUOTES: Final = {**ESCAPES, '"': '\\"'}
_DELETE: Final = 0x7F
_BASIC_END: Final = 0x10000
_SPECIALS: Final = str.maketrans(_IN_QUOTES)
_LEAST_EXPONENT: Final = -4
_MOST_EXPONENT: Final = 6
"""From this exponent on a double is written with an exponent, and below `_LEAST_EXPONENT`."""


def quote(text: str, *, plain: bool = False) -> str:
    """Return the text between double quotes; characters that cannot be printed become escape sequences, unless `plain`."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if plain:
        return f'"{text.translate(_SPECIALS)}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in _IN_QUOTES:
        return _IN_QUOTES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < ord(" ") or code == _DELETE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BASIC_END else f"\\U{code:08x}"


def format_double(value: float) -> str:
    """Return the double with the fewest digits that tell it apart, and an exponent outside of 1e-4 to 1e6."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, digits_and_exponent = ("-", repr(-value)) if math.copysign(1.0, value) < 0 else ("", repr(value))
    mantissa, _, exponent = digits_and_exponent.partition("e")
    integral, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (integral + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    leading = len(integral + fraction) - len(digits)
    scale = len(integral) - leading - 1 + int(exponent or 0)
    digits = digits.rstrip("0")
    # The digits with a point behind the first one, times ten to the power of `scale`, written out where that is short.
    if scale < _LEAST_EXPONENT or scale >= _MOST_EXPONENT:
        point = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
        return f"{sign}{point}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    if scale < 0:
        return f"{sign}0.{'0' * (-scale - 1)}{digits}"
    if len(digits) <= scale + 1:
        return sign + digits + "0" * (scale + 1 - len(digits))
    return f"{sign}{digits[: scale + 1]}.{digits[scale + 1 :]}"
