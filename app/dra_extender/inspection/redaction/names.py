"""All names of a cluster, by what they name, and what has to stay so that selectors keep their meaning."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, islice, pairwise
from random import Random
from typing import Final

from dra_extender.cel.analysis.renaming import renamed, unrenamable_parts
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.cel.values.semver import Semver, SemverError, parse_lenient
from dra_extender.inspection.near_names import is_slip, slip_contexts, slip_mark
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX

_DIGITS: Final = "0123456789abcdef"
_LENGTH: Final = 11
_MARK: Final = "r"
_BELOW: Final = ("0", "-0", ".0", "A", "+", "")
_MOST_COMPARED: Final = 500_000
"""Pairs of names that are compared in all to find slips, those with few others that are alike first."""
_MOST_MARKS: Final = 5
"""Marks of one name; the name of an attribute may have 32 characters."""


class UnorderableNameError(ValueError):
    """There is no name between two that have to stay; the message has these two."""


class OrderedNames:
    """Learns names with `new_name`; after `resolve`, `new_name` returns the new names, and `new_names` has them all.

    The new names compare as the names do, are as different, and say nothing of them but which is a slip of which.  They are words
    of letters and digits that begin with a letter where no name has to stay.  Names that have to stay are given to `keep` before
    `resolve`.
    """

    def __init__(self, ending: str = "") -> None:
        """Every new name ends with `ending`."""
        self._ending = ending
        self._learned: set[str] = set()
        self._kept: set[str] = set()
        self.new_names: dict[str, str] = {}
        self._resolved = False

    @property
    def kept_names(self) -> frozenset[str]:
        return frozenset(self._kept & self._learned)

    def keep(self, *names: str) -> None:
        """Have these names stay as they are."""
        self._kept.update(names)

    def new_name(self, name: str) -> str:
        """Return the new name; before `resolve`, the name itself.  The empty text stays."""
        if not name:
            return name
        if self._resolved:
            return self.new_names[name]
        self._learned.add(name)
        return name

    def resolve(self, random: Random) -> None:
        """Give a new name to each name.

        Raises:
            UnorderableNameError: names have to stay that leave no room for others between them.
        """
        self._resolved = True
        self.new_names = {name: name for name in self._kept}
        fences = sorted(self._kept)
        marks = _slip_marks(sorted(self._learned - self._kept))
        parts = _parts(sorted(self._learned - self._kept), fences)
        for (lower, upper), names in zip(pairwise(["", *fences, ""]), parts, strict=True):
            if names:
                prefix = _prefix(lower, upper)
                endings: set[str] = set()
                while len(endings) < len(names):
                    endings.add("".join(random.choices(_DIGITS, k=_LENGTH)))
                for name, ending in zip(names, sorted(endings), strict=True):
                    self.new_names[name] = f"{prefix}{_MARK}{ending}{marks.get(name, '')}{self._ending}"

    def end(self, name: str, ending: str) -> None:
        """After `resolve`: put this behind the other name of a name that does not stay."""
        if name and name not in self._kept:
            self.new_names[name] += ending


def _slip_marks(names: Sequence[str]) -> Mapping[str, str]:
    """Return the marks of the names that are slips of others: one mark for each set of names that are all slips of each other."""
    by_context: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in names:
        for context in slip_contexts(name):
            by_context[context].append(name)
    pairs = (pair for alike in sorted(by_context.values(), key=len) for pair in combinations(alike, 2))
    slips: dict[str, dict[str, None]] = defaultdict(dict)
    for name, other in islice(pairs, _MOST_COMPARED):
        if is_slip(name, other):
            slips[name][other] = slips[other][name] = None
    unmarked = {frozenset((name, other)) for name, others in slips.items() for other in others}
    marks: dict[str, list[str]] = defaultdict(list)
    number = 0
    for name, others in slips.items():
        for first in others:
            if frozenset((name, first)) in unmarked:
                group = [name, first]
                for other in others:
                    if all(other in slips[member] for member in group):
                        group.append(other)
                unmarked.difference_update(map(frozenset, combinations(group, 2)))
                number += 1
                for member in group:
                    marks[member].append(slip_mark(number))
    return {name: "".join(own[:_MOST_MARKS]) for name, own in marks.items()}


def _parts(names: Sequence[str], fences: Sequence[str]) -> Iterator[list[str]]:
    """Return the names below the first fence, between each two, and above the last."""
    remaining = iter(names)
    name = next(remaining, None)
    for fence in [*fences, None]:
        part = []
        while name is not None and (fence is None or name < fence):
            part.append(name)
            name = next(remaining, None)
        yield part


def _prefix(lower: str, upper: str) -> str:
    """Return a prefix of texts that all sort between the two names (an empty upper name: above the lower)."""
    if not upper:
        return lower + "0" if lower else ""
    bases = [lower] if not upper.startswith(lower) else [upper[:end] for end in range(len(lower), len(upper))]
    for base in bases:
        for ending in _BELOW:
            prefix = base + ending
            if lower < prefix < upper and not upper.startswith(prefix):
                return prefix
    raise UnorderableNameError(f"{lower!r} and {upper!r} have to stay, and no name stands between them")


REDACTED: Final = "redacted"
"""What stands in the place of sentences."""
_LONGEST_AMOUNT: Final = 32
_NATIVE: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_AFTER_IMPLICIT: Final = IMPLICIT_RESOURCE_PREFIX[:-1] + "0"
_ANY: Final = "*"
_BITS: Final = 3
_DIGIT: Final = (1 << _BITS) - 1
_ENDING: Final = 13
"""Digits from 0 to 7 that can give a text any CRC-32, with some to spare."""
_ZEROS: Final = "0" * _ENDING
_FIRST_VERSION: Final = 10_000
"""Redacted versions are greater, so that they are not mistaken for others."""


class ClusterNames:
    """Learns names while the objects are read for the first time; after `resolve`, answers with other names.

    Texts are names of objects, drivers, devices, labels and values of attributes, UIDs: one text has one other name, whatever it
    names.  Names of attributes and capacities are members, which CEL writes after a dot.
    """

    def __init__(self) -> None:
        self.texts = OrderedNames()
        self.members = OrderedNames()
        self.resources = OrderedNames(ending="/d")
        self._natives = OrderedNames()
        self._versions: dict[str, Semver] = {}
        self._ranks: dict[str, str] | None = None
        self._values: dict[str, set[str]] = defaultdict(set)
        self._labels: dict[str, set[str]] = defaultdict(set)
        self._ordered_labels: set[str] = set()
        self._drivers: set[str] = set()
        self._expressions: dict[str, str] = {}
        self._waiting: set[str] = set()
        self.resources.keep(*_NATIVE, IMPLICIT_RESOURCE_PREFIX, _AFTER_IMPLICIT)
        self._natives.keep(*_NATIVE)

    @property
    def kept_names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.texts.kept_names, *self.members.kept_names}))

    @property
    def versions(self) -> Mapping[str, str]:
        return self._ranks or {}

    def resolve(self, random: Random) -> None:
        """Give a new name to each name.

        Raises:
            UnorderableNameError: names that have to stay leave no room for others between them.
        """
        self._keep_what_selectors_read()
        # They are renamed anew with the other names.
        self._expressions.clear()
        for table in (self.texts, self.members, self.resources, self._natives):
            table.resolve(random)
        for uid in self._waiting:
            self.texts.end(uid, _ending(self.texts.new_name(uid), zlib.crc32(uid.encode())))
        keys = sorted({version.key for version in self._versions.values()})
        ranks = {key: f"{_FIRST_VERSION + rank}.0.0" for rank, key in enumerate(keys, 1)}
        self._ranks = {text: ranks[version.key] for text, version in self._versions.items()}

    def text(self, text: str) -> str:
        return self.texts.new_name(text)

    def member(self, name: str) -> str:
        return self.members.new_name(name)

    def driver(self, name: str) -> str:
        self._drivers.add(name)
        return self.text(name)

    def qualified(self, name: str) -> str:
        """Of an attribute or a capacity, with or without its domain."""
        domain, slash, member = name.rpartition("/")
        return f"{self.text(domain)}{slash}{self.member(member)}"

    def waiting_pod(self, uid: str) -> str:
        """Of the UID of a pod that waits: its checksum decides at which node a filter call begins, so that stays."""
        self._waiting.add(uid)
        return self.text(uid)

    def value(self, attribute: str, text: str) -> str:
        self._values[attribute].add(text)
        return self.text(text)

    def label(self, key: str, text: str) -> str:
        self._labels[key].add(text)
        return self.text(text)

    def compared(self, key: str, text: str) -> str:
        """Of a number with which values of a label are compared; it stays, and so do they."""
        self._ordered_labels.add(key)
        return self.label(key, text)

    def amount(self, text: str) -> str:
        """Keep an amount; anything else is a text."""
        if len(text) <= _LONGEST_AMOUNT:
            try:
                parse_quantity(text)
            except QuantityError:
                return self.text(text)
            return text
        return self.text(text)

    def version(self, text: str) -> str:
        """Return the place of a version in the order of all versions."""
        if self._ranks is not None:
            return self._ranks.get(text) or self.text(text)
        try:
            self._versions[text] = parse_lenient(text)
        except SemverError:
            return self.text(text)
        return text

    def resource(self, name: str) -> str:
        """Of a resource that containers ask for: native ones stay."""
        if name in _NATIVE:
            return name
        if name.startswith(IMPLICIT_RESOURCE_PREFIX):
            return IMPLICIT_RESOURCE_PREFIX + self.text(name.removeprefix(IMPLICIT_RESOURCE_PREFIX))
        return (self.resources if "/" in name else self._natives).new_name(name)

    def expression(self, text: str) -> str:
        """Return an expression that means the same of renamed devices; one that does not parse becomes a name."""
        renamed_expression = self._expressions.get(text)
        if renamed_expression is None:
            renamed_expression = self._expressions[text] = renamed(text, self) or self.text(text)
        return renamed_expression

    def _keep_what_selectors_read(self) -> None:
        for key in self._ordered_labels:
            self.texts.keep(*self._labels[key])
        for expression in self._expressions:
            parts = unrenamable_parts(expression)
            self.texts.keep(*parts.texts)
            if parts.drivers:
                self.texts.keep(*self._drivers)
            if parts.attributes is None:
                for name, values in self._values.items():
                    domain, _, member = name.rpartition("/")
                    self.texts.keep(*filter(None, (domain, *values)))
                    self.members.keep(member)
                continue
            for attribute in parts.attributes:
                domain, _, member = attribute.rpartition("/")
                for name, values in self._values.items():
                    # A domain that is an expression stands for any.
                    if name == attribute or (domain == _ANY and name.rpartition("/")[2] == member):
                        self.texts.keep(*values)


def _ending(text: str, checksum: int) -> str:
    """Digits behind the text with which its CRC-32 is this one."""
    _, bits = _reduced(zlib.crc32(f"{text}{_ZEROS}".encode()) ^ checksum, 0, _effects())
    return "".join(str(bits >> (place * _BITS) & _DIGIT) for place in range(_ENDING))


@cache
def _effects() -> Sequence[tuple[int, int]]:
    """Return what bits of an ending make of a checksum, as a basis, greatest first: (how the checksum changes, which bits).

    CRC-32 is linear: a bit has the same effect behind every text.
    """
    basis: list[tuple[int, int]] = []
    for bit in range(_ENDING * _BITS):
        place, value = divmod(bit, _BITS)
        ending = f"{_ZEROS[:place]}{1 << value}{_ZEROS[place + 1 :]}"
        effect = _reduced(zlib.crc32(ending.encode()) ^ zlib.crc32(_ZEROS.encode()), 1 << bit, basis)
        if effect[0]:
            basis = sorted((*basis, effect), reverse=True)
    return tuple(basis)


def _reduced(value: int, bits: int, basis: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return what is left of a value after all of the basis that is in it, and the bits that this stands for."""
    for effect, of_bits in basis:
        if value.bit_length() == effect.bit_length():
            value, bits = value ^ effect, bits ^ of_bits
    return value, bits
