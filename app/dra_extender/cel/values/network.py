"""IP addresses and networks as Kubernetes reads them, and URLs as Go's net/url reads them, which follows no RFC exactly.

Addresses have no zones, and IPv4-mapped IPv6 addresses are refused.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from dra_extender.cel.errors import CelRuntimeError

_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_LONGEST: Final = 100
"""The most characters of an address."""
_WIDTHS: Final = {4: 32, 6: 128}


class IpAddress(msgspec.Struct, frozen=True, gc=False):
    """An address: its family, 4 or 6, and its bits as a number."""

    family: int
    number: int

    @property
    def size(self) -> int:
        """Bytes, as cost formulas count them."""
        return _WIDTHS[self.family] // 8

    def __str__(self) -> str:
        return str(ipaddress.IPv4Address(self.number) if self.family == 4 else ipaddress.IPv6Address(self.number))  # noqa: PLR2004 - IPv4

    def within(self, network: "Cidr") -> bool:
        """Return whether the first bits are those of the network."""
        shift = _WIDTHS[network.address.family] - network.bits
        return self.family == network.address.family and self.number >> shift == network.address.number >> shift


class Cidr(msgspec.Struct, frozen=True, gc=False):
    """A network: an address, not necessarily the lowest one, and how many of its leading bits count."""

    address: IpAddress
    bits: int

    @property
    def size(self) -> int:
        """Bytes of the part that counts."""
        return (self.bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def contains(self, network: "Cidr") -> bool:
        """Return whether every address of the other network is in this one."""
        return self.bits <= network.bits and network.address.within(self)

    def masked(self) -> "Cidr":
        """Return the same network, written with its lowest address."""
        shift = _WIDTHS[self.address.family] - self.bits
        return Cidr(IpAddress(self.address.family, self.address.number >> shift << shift), self.bits)


def parse_ip(text: str) -> IpAddress:
    """Read an address; one with a zone, and an IPv4-mapped IPv6 address, are refused."""
    if len(text) > _LONGEST:
        raise CelRuntimeError(f"IP Address {text[:60]!r} parse error during conversion from string")
    if "%" in text:
        raise CelRuntimeError(f"IP address {text[:60]!r} with zone value is not allowed")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelRuntimeError(f"IP Address {text[:60]!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelRuntimeError(f"IPv4-mapped IPv6 address {text[:60]!r} is not allowed")
    return IpAddress(address.version, int(address))


def parse_cidr(text: str) -> Cidr:
    """Read a network, ADDRESS/BITS."""
    head, slash, bits = text.rpartition("/") if len(text) <= 2 * _LONGEST else (text, "", "")
    address = parse_ip(head)
    if not slash or _BITS.fullmatch(bits) is None or int(bits) > _WIDTHS[address.family]:
        raise CelRuntimeError(f"network address parse error during conversion from string: {text[:60]!r}")
    return Cidr(address, int(bits))


_ALNUM: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_PLAIN: Final = {
    "path": _ALNUM | frozenset("$&+,/:;=@"),
    "user": _ALNUM | frozenset("$&+,;="),
    "host": _ALNUM | frozenset("!$&'()*+,;=:[]<>\""),
    "fragment": _ALNUM | frozenset("$&+,/:;=?@!()*"),
}
_SEGMENT: Final = frozenset("!$&'()*+,;=:@[]%")
_SPELLED: Final = {
    part: tuple(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in range(256))
    for part, plain in _PLAIN.items()
}
_WRITTEN: Final = {
    part: re.compile(f"[{re.escape(''.join(sorted(plain | _SEGMENT)))}]*+") for part, plain in _PLAIN.items()
}
_FOREIGN_IN_HOST: Final = re.compile(f"[^{re.escape(''.join(sorted(_PLAIN['host'])))}%\x80-\U0010ffff]")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_BAD_HOST_ESCAPE: Final = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_MAX_PARAMETERS: Final = 10_000
_READ_WORK: Final = 900
_CHARACTER_WORK: Final = 13
_WIDE_WORK: Final = 50


class UrlError(ValueError):
    """A text that is no URL; the message says why, without quoting it."""


class Url(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A parsed URL; `path` is escaped, `host` is not and includes the port, `text` is the normal form."""

    scheme: str
    host: str
    path: str
    query: str
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def split_host(self) -> tuple[str, str]:
        """Return the host without brackets, and the port, which may be empty."""
        head, colon, tail = self.host.rpartition(":")
        host, port = (head, tail) if colon and _PORT.fullmatch(colon + tail) else (self.host, "")
        return (host[1:-1] if host.startswith("[") and host.endswith("]") else host), port

    def parameters(self) -> dict[str, list[str]]:
        """Return the query's values by name; pairs that are malformed are left out."""
        parameters: dict[str, list[str]] = {}
        if self.query.count("&") >= _MAX_PARAMETERS:
            return parameters
        for pair in self.query.split("&"):
            if not pair or ";" in pair:
                continue
            key, _, value = pair.partition("=")
            if not _BAD_ESCAPE.search(key) and not _BAD_ESCAPE.search(value):
                parameters.setdefault(_unescaped(key.replace("+", " ")), []).append(_unescaped(value.replace("+", " ")))
        return parameters


def url_work(text: str) -> int:
    """Return the most units of work that reading a URL takes; checking it takes half of that."""
    return _READ_WORK + len(text) * (_CHARACTER_WORK if text.isascii() else _WIDE_WORK)


def check_url(text: str) -> None:
    """Check that a text is an absolute URL or an absolute path."""
    _parse(text, "")


def parse_url(text: str) -> Url:
    """Read an absolute URL or an absolute path; what follows `#` is taken off."""
    check_url(text)
    head, _, fragment = text.partition("#")
    return _parse(head, fragment, lenient=True)


def _parse(text: str, fragment: str, *, lenient: bool = False) -> Url:
    if _CONTROL.search(text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and not lenient:
        raise UrlError("empty url")
    if text == "*":
        return Url("", "", "*", "", f"*{_fragment(fragment)}")
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    before, colon, after_scheme = text.partition(":")
    scheme, after_scheme = (before.lower(), after_scheme) if colon and _SCHEME.fullmatch(before) else ("", text)
    head, mark, query = after_scheme.partition("?")
    if not head.startswith("/"):
        if not scheme:
            raise UrlError("invalid URI for request")
        return Url(scheme, "", "", query, f"{scheme}:{head}{mark}{query}{_fragment(fragment)}")
    host, prefix, path = "", f"{scheme}:" if scheme else "", head
    if head.startswith("//") and (scheme or (lenient and not head.startswith("///"))):
        authority, slash, path = head[2:].partition("/")
        user, host = _authority(scheme, authority)
        path = slash + path
        prefix += f"//{user or ''}{_escaped(host, 'host')}" if host or slash or user is not None else ""
    path = _escaped_part(path, "path")
    return Url(scheme, host, path, query, f"{prefix}{path}{mark}{query}{_fragment(fragment)}")


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    """Return the user part in normal form with its `@`, if there is one, and the host."""
    user, at, host = authority.rpartition("@")
    decoded = _host(scheme, host)
    if not at:
        return None, decoded
    if not _USER.fullmatch(user):
        raise UrlError("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    return f"{_escaped(_decoded(name), 'user')}{colon}{_escaped(_decoded(password), 'user')}@", decoded


def _host(scheme: str, host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise UrlError("invalid IP-literal")
    if opening == 0:
        return _bracketed(host)
    if ":" in host:
        place = host.index(":") if scheme in {"http", "https"} else host.rindex(":")
        _require_port(host[place:])
    return _host_decoded(host)


def _bracketed(host: str) -> str:
    """Return a bracketed address, decoded, and its port."""
    closing = host.rfind("]")
    if closing < 0:
        raise UrlError("missing ']' in host")
    _require_port(host[closing + 1 :])
    name, percent, zone = host[1:closing].partition("%25")
    address = _host_decoded(name)
    try:
        family = parse_ip(address.removeprefix("::ffff:") if "." in address else address).family
    except CelRuntimeError as error:
        raise UrlError(f"invalid host: {error}") from None
    if family == 4 and ":" not in address:  # noqa: PLR2004 - IPv4
        raise UrlError("invalid IP-literal")
    if percent and not zone:
        raise UrlError("invalid host: the zone is empty")
    return f"[{address}{'%' + _decoded(zone) if percent else ''}]{host[closing + 1 :]}"


def _require_port(text: str) -> None:
    if not _PORT.fullmatch(text):
        raise UrlError(f'invalid port "{text}" after host')


def _host_decoded(host: str) -> str:
    wrong = _BAD_HOST_ESCAPE.search(host)
    if wrong is not None:
        raise UrlError(f'invalid URL escape "{wrong.group()}"')
    foreign = _FOREIGN_IN_HOST.search(host)
    if foreign is not None:
        raise UrlError(f'invalid character "{foreign.group()}" in host name')
    return _decoded(host)


def _decoded(text: str) -> str:
    wrong = _BAD_ESCAPE.search(text)
    if wrong is not None:
        raise UrlError(f'invalid URL escape "{wrong.group()}"')
    return _unescaped(text)


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.encode(errors="surrogatepass")).decode(errors="surrogateescape")


def _escaped(text: str, part: str) -> str:
    return "".join(map(_SPELLED[part].__getitem__, text.encode(errors="surrogateescape")))


def _escaped_part(text: str, part: str) -> str:
    """Return the text as written if its escapes are valid in this part, else escaped as Go does."""
    decoded = _decoded(text)
    if _WRITTEN[part].fullmatch(text):
        return text
    return "*" if decoded == "*" and part == "path" else _escaped(decoded, part)


def _fragment(text: str) -> str:
    return f"#{_escaped_part(text, 'fragment')}" if text else ""
