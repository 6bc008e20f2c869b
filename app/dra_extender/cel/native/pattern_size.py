"""The size of a regular expression's program, estimated from its text before RE2 compiles it.

RE2 expands every class to ranges of UTF-8 bytes and every counted repetition to copies, and checks its limits only then. The
estimate is an upper bound of the program's size, and close to it for ordinary patterns. Patterns that RE2 does not accept get some
estimate; RE2 refuses them.
"""

import re
from collections.abc import Mapping
from typing import Final

_MOST: Final = 10**9
_START: Final = 6
"""Instructions of a pattern that matches nothing."""
_ANY_CHARACTER: Final = 9
_NEGATED: Final = 14
"""The least size of a negated class."""
_SPLIT: Final = 8
"""The additional size of a character beyond ASCII in a negated class, whose ranges it splits."""
_PLAIN: Final = 2
_NAMED_GROUP: Final = 2
_SCRIPT: Final = 150
_SINGLE_BYTE: Final = 0x80
_ASCII_FOLD: Final = 8
_MOST_FOLDED: Final = 300
_ENDS: Final = ((0x80, 1), (0x800, 2), (0x10000, 3), (0x110000, 4))
_ESCAPES: Final[Mapping[str, int]] = {"d": 2, "w": 8, "s": 6, "D": 16, "W": 20, "S": 20}
_CATEGORIES: Final[Mapping[str, tuple[int, int]]] = {
    "L": (1326, 1358),
    "Lo": (1035, 1127),
    "Ll": (908, 994),
    "Lu": (873, 952),
    "Mn": (638, 911),
    "M": (616, 834),
    "P": (369, 652),
    "S": (491, 627),
    "Po": (349, 622),
    "N": (265, 543),
    "So": (407, 492),
    "Mc": (346, 484),
    "Common": (392, 453),
    "No": (168, 312),
    "Nd": (102, 305),
    "Lm": (150, 286),
    "Sm": (128, 193),
    "Ps": (141, 182),
    "Pe": (133, 179),
}
"""The sizes of categories and scripts above `_SCRIPT`, and of their complements, at most."""

_LITERALS: Final = re.compile(r"[^\\\[\](){}|*+?.^$]++")
_COUNT: Final = re.compile(r"\{([0-9]{1,9})(,?)([0-9]{0,9})\}")
_FLAGS: Final = re.compile(r"\?([imsU]*)(-[imsU]*)?([:)])")
_NAME: Final = re.compile(r"\?P?<[^>]*>")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_UNICODE: Final = re.compile(r"\\[pP](?:\{\^?([^}]*)\}|(.))")
_HEXADECIMAL: Final = re.compile(r"\\x(?:\{([0-9a-fA-F]{1,8})\}|([0-9a-fA-F]{2}))")
_OCTAL: Final = re.compile(r"\\0?[0-7]{1,3}")
_NUMBERS: Final = ((_HEXADECIMAL, 16), (_OCTAL, 8))
_BEGINNINGS: Final = frozenset("x01234567")
_POSIX: Final = re.compile(r"\[:\^?[a-z]+:\]")


def estimated_size(pattern: str) -> int:
    """Return instructions of the pattern's program, at most; an escape sequence that Go's syntax does not have is a ValueError."""
    return min(_START + _Estimate(pattern).total(), _MOST)


class _Estimate:
    """One pass over a pattern, with a stack of open groups."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._place = 0
        self._fold = False
        self._negated = False
        self._open: list[tuple[int, int, bool]] = []
        self._sum = 0
        self._last = 0
        """The size of the last part, which a repetition would repeat; the sum does not include it yet."""

    def total(self) -> int:
        text = self._text
        while self._place < len(text):
            self._step(text[self._place])
        while self._open:
            self._close()
        return self._sum + self._last

    def _push(self, size: int) -> None:
        self._sum = min(self._sum + self._last, _MOST)
        self._last = min(size, _MOST)

    def _step(self, character: str) -> None:
        literals = _LITERALS.match(self._text, self._place)
        if literals is not None:
            self._literals(literals.group())
            return
        if character == "\\":
            self._escape()
            return
        if character == "[":
            self._push(self._class())
            return
        self._place += 1
        if character == "(":
            self._group()
        elif character == ")":
            self._close()
        elif character == "|":
            self._push(0)
            self._sum += 1
        elif character in "*+?":
            self._last = max(1, self._last) + 2
        elif character == "{":
            self._repeat()
        else:
            self._push(_ANY_CHARACTER if character == "." else self._literal(ord(character)))

    def _literals(self, characters: str) -> None:
        """Count characters that stand for themselves; a repetition applies to the last."""
        self._place += len(characters)
        if characters.isascii():
            self._push((len(characters) - 1) * (_ASCII_FOLD if self._fold else 1))
        else:
            self._push(sum(self._literal(ord(character)) for character in characters[:-1]))
        self._push(self._literal(ord(characters[-1])))

    def _literal(self, code: int) -> int:
        if self._fold:
            return _ASCII_FOLD if code < _SINGLE_BYTE else 4 * _ASCII_FOLD
        return _bytes_of(code)

    def _group(self) -> None:
        extra = 0
        outer = self._fold
        match = _FLAGS.match(self._text, self._place)
        if match is not None:
            self._place = match.end()
            if "i" in match[1]:
                self._fold = True
            elif match[2] and "i" in match[2]:
                self._fold = False
            if match[3] == ")":
                self._push(0)
                return
        else:
            named = _NAME.match(self._text, self._place)
            if named is not None:
                self._place = named.end()
                extra = _NAMED_GROUP
        self._push(0)
        self._open.append((self._sum, extra, outer))
        self._sum = 0

    def _close(self) -> None:
        if not self._open:
            self._push(1)
            return
        within = max(1, self._sum + self._last)
        self._sum, extra, self._fold = self._open.pop()
        self._last = within + extra

    def _repeat(self) -> None:
        match = _COUNT.match(self._text, self._place - 1)
        if match is None:
            self._push(1)
            return
        self._place = match.end()
        minimum = int(match[1])
        maximum = int(match[3]) if match[3] else minimum
        size = max(1, self._last)
        open_ended = match[2] and not match[3]
        self._last = min(
            minimum * size + max(0, maximum - minimum) * (size + 1) + (2 + size if open_ended else 1), _MOST
        )

    def _escape(self) -> None:
        quoted = _QUOTED.match(self._text, self._place)
        if quoted is not None:
            if quoted[1]:
                self._literals(quoted[1])
            self._place = quoted.end()
            return
        size, low = self._escaped()
        self._push(self._literal(low) if low >= 0 else size)

    def _escaped(self) -> tuple[int, int]:
        """Return the size of an escape sequence, and the character it stands for: -1 if it stands for a class or an assertion."""
        character = self._text[self._place + 1 : self._place + 2]
        match = _UNICODE.match(self._text, self._place) if character in {"p", "P"} else None
        if match is not None:
            self._place = match.end()
            sizes = _CATEGORIES.get(match[1] or match[2] or "", (_SCRIPT, _SCRIPT))
            complement = self._negated or self._fold or match[0].startswith("\\P") or match[0].startswith("^", 3)
            return sizes[complement], -1
        code = self._number() if character in _BEGINNINGS else None
        if code is not None:
            return 0, code
        self._place += 2
        if character in _ESCAPES:
            return _ESCAPES[character] + (_ASCII_FOLD if self._fold else 0), -1
        if character == "C":
            raise ValueError("invalid escape sequence: `\\C`")
        if character.isalnum():
            return 2, -1
        return 0, ord(character or " ")

    def _number(self) -> int | None:
        """Return the character that an escape sequence names by its hexadecimal or octal number, if it does."""
        for form, base in _NUMBERS:
            match = form.match(self._text, self._place)
            if match is not None:
                self._place = match.end()
                return int((match[1] or match[2]) if form is _HEXADECIMAL else match[0][1:], base)
        return None

    def _class(self) -> int:
        """Return a class in brackets; its ranges are counted one by one, as if none overlapped."""
        text = self._text
        self._place += 1
        negated = text.startswith("^", self._place)
        self._place += negated
        size = _NEGATED if negated else 0
        self._negated = negated
        first = True
        while self._place < len(text) and (first or text[self._place] != "]"):
            first = False
            member = self._member()
            size += member + _SPLIT if negated and member > _PLAIN else member
        self._place += 1
        self._negated = False
        return max(1, size)

    def _member(self) -> int:
        posix = _POSIX.match(self._text, self._place) if self._text[self._place] == "[" else None
        if posix is not None:
            self._place = posix.end()
            return _NEGATED + _ASCII_FOLD
        size, low = self._class_member()
        if low < 0:
            return size
        text = self._text
        if not text.startswith("-", self._place) or text.startswith("-]", self._place):
            return self._literal(low) + 1
        self._place += 1
        _, high = self._class_member()
        return _range_size(low, max(low, high), fold=self._fold)

    def _class_member(self) -> tuple[int, int]:
        if self._text.startswith("\\", self._place):
            return self._escaped()
        self._place += 1
        return 0, ord(self._text[self._place - 1 : self._place] or " ")


def _bytes_of(code: int) -> int:
    return next((width for end, width in _ENDS if code < end), 4)


def _range_size(low: int, high: int, *, fold: bool) -> int:
    width = _bytes_of(high)
    size = 2 if width == 1 else width + 1 if low >> 6 == high >> 6 else _RANGES[width]
    if not fold:
        return size
    if high < _SINGLE_BYTE:
        return size + 2 * _ASCII_FOLD
    return size + 4 * min(high - low + 1, _MOST_FOLDED)


_RANGES: Final = (0, 2, 8, 14, 22)
"""The size of a range by the number of bytes of its last character."""
