"""The named formats of Kubernetes, with upstream's messages for texts that do not fit."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dra_extender.cel.values.go_format import quote
from dra_extender.cel.values.network import UrlError, check_url
from dra_extender.cel.values.times import is_date

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[^\n][0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_LABEL_BYTES: Final = 63
_SUBDOMAIN_BYTES: Final = 253
_ALPHANUMERIC: Final = "must start and end with an alphanumeric character"
_KEY_RULE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ALPHANUMERIC}"
_KEY_EXAMPLES: Final = ("MyName", "my.name", "123-abc")

# The same languages without the nested repetition that makes a backtracking matcher slow.
_LABEL_MATCH: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_DNS1035_MATCH: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_KEY_MATCH: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


class NamedFormat(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A format; `problems` returns upstream's messages about a text, none if it fits. Cost formulas use `pattern_size`."""

    name: str
    pattern_size: int
    problems: Callable[[str], list[str]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _shape(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "bytes") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode(errors="surrogatepass")) > limit else []


def _is_subdomain(text: str) -> bool:
    return all(_LABEL_MATCH.fullmatch(part) for part in text.split("."))


def _label(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_BYTES, "characters")
    if _LABEL_MATCH.fullmatch(text):
        return problems
    if _is_subdomain(text):
        return [*problems, "must not contain dots"]
    rule = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ALPHANUMERIC}"
    return [*problems, _shape(rule, _LABEL, "my-name", "123-abc")]


def _subdomain(text: str) -> list[str]:
    problems = _too_long(text, _SUBDOMAIN_BYTES, "characters")
    if _is_subdomain(text):
        return problems
    rule = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ALPHANUMERIC}"
    return [*problems, _shape(rule, _SUBDOMAIN, "example.com")]


def _dns1035(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_BYTES, "characters")
    if _DNS1035_MATCH.fullmatch(text):
        return problems
    rule = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
        "start with an alphabetic character, and end with an alphanumeric character"
    )
    return [*problems, _shape(rule, _DNS1035, "my-name", "abc-123")]


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        rule = _shape(f"a valid label key {_KEY_RULE}", _KEY, *_KEY_EXAMPLES)
        return [f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems: list[str] = []
    if slash:
        wrong = _subdomain(prefix) if prefix else ["must be non-empty"]
        problems.extend(f"prefix part {problem}" for problem in wrong)
    wrong = _too_long(name, _LABEL_BYTES) if name else ["must be non-empty"]
    if not _KEY_MATCH.fullmatch(name):
        wrong.append(_shape(_KEY_RULE, _KEY, *_KEY_EXAMPLES))
    return problems + [f"name part {problem}" for problem in wrong]


def _label_value(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_BYTES)
    if not text or _KEY_MATCH.fullmatch(text):
        return problems
    rule = (
        "a valid label must be an empty string or consist of alphanumeric characters, "
        f"'-', '_' or '.', and {_ALPHANUMERIC}"
    )
    return [*problems, _shape(rule, _VALUE, "MyValue", "my_value", "12345")]


def _prefix_of(check_name: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the format of prefixes of generated names, which may end with a dash behind another character."""
    return lambda text: check_name(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> list[str]:
    try:
        check_url(text)
    except UrlError as error:
        return [f"parse {quote(text)}: {error}"]
    return []


def _is_datetime(text: str) -> bool:
    date, separator, clock = text.lower().partition("t")
    match = _CLOCK.fullmatch(clock.partition("t")[0])
    return (
        bool(separator) and match is not None and is_date(date) and match[1] <= "23" and max(match[2], match[3]) <= "59"
    )


def _either(fits: Callable[[str], object], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if fits(text) else [problem]


_DATE_TIME_PATTERN_SIZE: Final = 71

FORMATS: Final[Mapping[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", 30, _label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", 30, _dns1035),
    "qualifiedName": NamedFormat("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", 30, _prefix_of(_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", 60, _prefix_of(_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", 30, _prefix_of(_dns1035)),
    "labelValue": NamedFormat("LabelValue", 40, _label_value),
    "uri": NamedFormat("URI", 1103, _uri),
    "uuid": NamedFormat("uuid", 70, _either(_UUID.fullmatch, "does not match the UUID format")),
    "byte": NamedFormat("byte", 84, _either(lambda text: text and _BASE64.fullmatch(text), "invalid base64")),
    "date": NamedFormat("date", _DATE_TIME_PATTERN_SIZE, _either(is_date, "invalid date")),
    "datetime": NamedFormat("datetime", _DATE_TIME_PATTERN_SIZE, _either(_is_datetime, "invalid datetime")),
}
"""All formats, by the names that expressions use."""
