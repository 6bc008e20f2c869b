"""Every native function of the CEL engine, by its name: tests measure each of them."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final

from dra_extender.cel import library, native
from dra_extender.cel.native.call import NativeFunction

_BY_KINDS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("any", "any"): ("_==_ of texts", "_<_ of texts", "_<=_ of texts", "_>_ of texts", "_>=_ of texts"),
    ("bytes",): ("decode", "decode with surrogates", "hex", "lowerAscii", "upperAscii"),
    ("index", "index"): ("lists.range",),
    ("list", "any", "index", "index"): ("in",),
    ("list", "index", "index"): ("a copy", "types", "lengths", "sort"),
    ("list", "list"): ("==",),
    ("text",): (
        *("encode", "quote", "strings.quote", "quantity", "isQuantity", "url", "isURL"),
        *("ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "timestamp"),
    ),
    ("text", "any"): ("semver", "isSemver"),
    ("text", "index", "index"): ("substring", "characters"),
    ("text", "list"): ("join",),
    ("text", "text"): ("contains", "count", "startsWith", "endsWith", "trim from the left", "trim from the right"),
    ("text", "text", "index"): ("lastIndexOf", "split"),
    ("text", "text", "index", "index"): ("indexOf",),
    ("text", "text", "text", "index"): ("replace",),
    ("kubernetes.NamedFormat", "text"): ("validate",),
    ("kubernetes.Quantity",): ("asApproximateFloat",),
    ("kubernetes.Quantity", "kubernetes.Quantity"): ("add", "sub"),
    ("kubernetes.Semver", "kubernetes.Semver"): tuple(
        f"{name} of versions" for name in ("isGreaterThan", "isLessThan", "compareTo")
    ),
    ("kubernetes.URL",): ("getHostname", "getPort"),
    ("net.CIDR",): ("string of a network",),
    ("net.CIDR", "text"): ("containsIP", "containsCIDR"),
    ("net.IP",): ("string of an address",),
}
KINDS: Final[Mapping[str, tuple[str, ...]]] = {name: kinds for kinds, names in _BY_KINDS.items() for name in names}
"""The kinds of the arguments of each native function: text, bytes, list, index, any, or the name of a CEL type."""


def native_functions() -> list[NativeFunction]:
    """The native functions that the packages `native` and `library` define at module level, in the order of their modules."""
    found = {id(each): each for module in _modules(native, library) for each in _defined(module)}
    return list(found.values())


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(each.name)


def _defined(module: ModuleType) -> Iterator[NativeFunction]:
    for value in vars(module).values():
        several = value.values() if isinstance(value, Mapping) else (value,)
        yield from (each for each in several if isinstance(each, NativeFunction))
