"""Probe of the native functions: runs one with arguments that its own worst case admits, and measures its CPU."""

import importlib
from collections.abc import Callable, Mapping
from time import thread_time
from typing import Any, Final

from dra_extender.cel.cost import CALL_LIMIT
from dra_extender.cel.errors import CelError

from tests.hostile.measuring import forget_peak, peak, resident
from tests.support.cel.native_functions import KINDS, native_functions

_OF_TEXTS: Final = frozenset({"join", "lengths"})
"""Entries that are given lists of texts alone, as the type checker sees to."""
_OF_BLANKS: Final = frozenset({"trim from the left", "trim from the right"})
"""Entries whose second argument is always the few characters that are blank."""
_READERS: Final[Mapping[str, str]] = {
    "kubernetes.Quantity": "quantity",
    "kubernetes.Semver": "semver",
    "kubernetes.URL": "url",
    "net.CIDR": "cidr",
    "net.IP": "ip",
}
"""The entry that makes an argument of a type from a text."""
_RUNS: Final = 2
_MOST_CHARACTERS: Final = 500_000
_NUMBERS: Final[tuple[Callable[[int, str], Any], ...]] = (
    lambda place, _: place,
    lambda place, _: -place,
    lambda place, _: place * (2**61 - 1),
    lambda place, _: place * 1.5,
    lambda place, text: f"{text}{place}",
    lambda _, text: text,
    lambda place, _: place % 2 == 0,
    lambda place, text: text.encode(errors="surrogatepass") + b"%d" % place,
)
"""Elements of lists by place: ascending, descending, of one hash, texts that differ at their ends or not at all."""


def describe(_: dict[str, Any]) -> dict[str, Any]:
    """Name and kinds of arguments of each native function."""
    return {"natives": [{"name": name, "takes": KINDS[name]} for name in _natives()]}


def native(job: dict[str, Any]) -> dict[str, Any]:
    """Run a native function if its arguments can be made and are admitted."""
    entry = _natives()[job["name"]]
    try:
        arguments: list[Any] = []
        for kind, each in zip(KINDS[entry.name], job["arguments"], strict=True):
            arguments.append(_place(each, arguments[0]) if kind == "index" and arguments else _argument(kind, each))
        if entry.name in _OF_BLANKS:
            arguments[1] = " \t\r\n\u00a0\u2028"
        if entry.name in _OF_TEXTS:
            arguments = [list(map(str, each)) if type(each) is list else each for each in arguments]
    except CelError as refused:
        return {"values": {}, "note": f"no such argument: {refused}"[:200]}
    if entry.name == "join" and sum(map(len, arguments[1])) + len(arguments[0]) * len(arguments[1]) > _MOST_CHARACTERS:
        return {"values": {}, "note": "not admitted: what is built is charged before the call"}
    begun = thread_time()
    work = entry.work(*arguments)
    values = {"native": thread_time() - begun}
    if work > CALL_LIMIT:
        return {"values": values, "note": f"not admitted: {work} units of work"}
    before, note = resident(), ""
    forget_peak()
    measured = []
    for _ in range(_RUNS):
        begun = thread_time()
        try:
            entry.function(*arguments)
        except (CelError, UnicodeDecodeError) as failed:
            note = f"{type(failed).__name__}, "
        except Exception as problem:  # noqa: BLE001 - nothing else may come out
            return {"values": {"broken": 1.0}, "note": f"{type(problem).__name__}: {problem}"[:300]}
        measured.append(thread_time() - begun)
    values |= {"cpu": min(measured), "charged": float(work)}
    values["native"] = max(values["native"], min(measured))
    return {
        "values": {**values, "grown": float(max(0, peak() - before))},
        "note": f"{note}{work} units of work, {job['name']}",
    }


def _natives() -> Mapping[str, Any]:
    return {each.name: each for each in native_functions()}


def _place(given: Mapping[str, Any], first: Any) -> int:
    """The beginning or the end of what is looked at, or any place."""
    end = first if isinstance(first, int) else len(first)
    place = int((0, end, given["length"])[given["shape"] % 3])
    return min(place, end) if isinstance(first, list) else place


def _argument(kind: str, given: Mapping[str, Any]) -> Any:
    text = _text(given)
    if kind in {"text", "any"}:
        return text
    if kind == "bytes":
        return text.encode(errors="surrogatepass")
    if kind == "index":
        return int(given["length"]) - 1
    if kind == "list":
        make = _NUMBERS[given["shape"] % len(_NUMBERS)]
        length = min(_MOST_CHARACTERS, given["length"])
        short = text[: max(1, _MOST_CHARACTERS // max(1, length))]
        return [make(place, short) for place in range(length)]
    if kind == "kubernetes.NamedFormat":
        formats = importlib.import_module("dra_extender.cel.values.named_formats").FORMATS
        return list(formats.values())[given["shape"] % len(formats)]
    reader = _natives()[_READERS[kind]]
    arguments = (text, False)[: len(KINDS[reader.name])]
    if reader.work(*arguments) > CALL_LIMIT:
        raise CelError("what it is made of is not admitted")
    return reader.function(*arguments)


def _text(given: Mapping[str, Any]) -> str:
    """An atom repeated up to a length, between a beginning and an end."""
    atom, length = given["atom"] or "a", min(given["length"], _MOST_CHARACTERS)
    middle = (atom * (length // len(atom) + 1))[:length]
    whole = f"{given['before']}{middle}{given['after']}"
    return whole[: _MOST_CHARACTERS if whole.isascii() else _MOST_CHARACTERS // 4]
