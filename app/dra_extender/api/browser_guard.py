"""Refuses requests that a web page made a browser send, by their headers.

kube-scheduler, kubelets, Prometheus and the commands send no `Origin`.  A page of another site can make a browser send requests to
a forwarded port, or to an address that only the browser reaches:

* directly: then the browser sends `Origin` or `Sec-Fetch-Site`, and asks by a preflight before it sends `application/json`;
* to a name of the page's own that resolves to that address (DNS rebinding): then the `Host` header has a name under a public
  top-level domain, because nobody can register another one.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

RawHeaders = Iterable[tuple[bytes, bytes]]
"""Names in lower case, with their values, in the order in which they were sent."""

_HOST: Final = b"host"
_ORIGIN: Final = b"origin"
_SITE: Final = b"sec-fetch-site"
_MODE: Final = b"sec-fetch-mode"
_DESTINATION: Final = b"sec-fetch-dest"
_CONTENT_TYPE: Final = b"content-type"
_READ: Final = frozenset({_HOST, _ORIGIN, _SITE, _MODE, _DESTINATION, _CONTENT_TYPE})
_SAFE: Final = frozenset({b"GET", b"HEAD"})
_JSON: Final = b"application/json"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PRIVATE_DOMAINS: Final = (".svc", ".svc.cluster.local", ".localhost", ".internal")
_NO_TOP_LEVEL: Final = re.compile("[-_0-9]")
_LONGEST_HOST: Final = 300
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[-_.a-z0-9]{0,251}[a-z0-9_])?)\.?(?::[0-9]{0,5})?")


class RequestRefusal(NamedTuple):
    """The reason why a request is not answered: the status, the reason as metrics name it, and a sentence."""

    status: HTTPStatus
    reason: str
    sentence: str


class BrowserGuard:
    """The rule for the requests of one listener.

    By default a Host header must be an address or a name that nobody can register publicly: `localhost`, one label, a name below
    `svc`, `svc.cluster.local`, `localhost` or `internal`, or one whose last label has a digit or a hyphen, such as
    `name.kube-system`.
    """

    def __init__(self, allowed_hosts: Collection[str] = (), *, any_host: bool = False, loopback: bool = False) -> None:
        """Say which further hosts are accepted, or that only those of the loopback interface are.

        `allowed_hosts`: names that are accepted besides.  `any_host`: every name is accepted.  `loopback`: only `localhost`,
        `127.0.0.1` and `[::1]` are.
        """
        self._allowed = frozenset(name.lower() for name in allowed_hosts)
        self._any_host = any_host
        self._loopback = loopback

    def refusal(self, method: bytes, headers: RawHeaders) -> RequestRefusal | None:
        """Return why a request is refused; None if it may be answered."""
        values: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _READ:
                if name in values:
                    sentence = f"expected the header {name.decode().title()} once"
                    return RequestRefusal(HTTPStatus.BAD_REQUEST, "repeated_header", sentence)
                values[name] = value
        refusal = self._host_refusal(values.get(_HOST))
        if refusal is None and (_ORIGIN in values or _SITE in values):
            refusal = _origin_refusal(method, values)
        if refusal is None and method not in _SAFE:
            refusal = _content_refusal(values.get(_CONTENT_TYPE))
        return refusal

    def _host_refusal(self, host: bytes | None) -> RequestRefusal | None:
        if host is None:
            # Browsers always send one.
            return _refuse_host("expected localhost as host, got none") if self._loopback else None
        name = _name_in(host) if len(host) <= _LONGEST_HOST else ""
        if self._loopback:
            return None if name in _LOOPBACK else _refuse_host(f"expected localhost as host, got {_shown(host)}")
        if not name:
            return _refuse_host(f"expected a name or an address as host, got {_shown(host)}")
        if self._any_host or name in self._allowed or _is_private(name):
            return None
        return _refuse_host(
            f"expected an address, or a name of this cluster, as host, got {_shown(host)}; "
            "other names are accepted if the setting server.allowed_hosts has them"
        )


def _origin_refusal(method: bytes, values: Mapping[bytes, bytes]) -> RequestRefusal | None:
    """Refuse what a page of another origin makes a browser send; a link that a person follows is no such request."""
    origin, host = values.get(_ORIGIN), values.get(_HOST)
    if origin is not None and (host is None or origin.lower().partition(b"://")[2] != host.lower()):
        sentence = f"expected no request of a web page, got one of the origin {_shown(origin)}"
        return RequestRefusal(HTTPStatus.FORBIDDEN, "origin", sentence)
    is_link = method in _SAFE and (values.get(_MODE), values.get(_DESTINATION)) == (b"navigate", b"document")
    if is_link or values.get(_SITE, b"none") in {b"none", b"same-origin"}:
        return None
    return RequestRefusal(
        HTTPStatus.FORBIDDEN, "origin", f"expected no request of a web page, got Sec-Fetch-Site {_shown(values[_SITE])}"
    )


def _content_refusal(content_type: bytes | None) -> RequestRefusal | None:
    if content_type is not None and content_type.partition(b";")[0].strip().lower() == _JSON:
        return None
    got = "none" if content_type is None else _shown(content_type)
    sentence = f"expected Content-Type application/json, got {got}"
    return RequestRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content_type", sentence)


def _refuse_host(sentence: str) -> RequestRefusal:
    return RequestRefusal(HTTPStatus.BAD_REQUEST, "host", sentence)


def _shown(value: bytes) -> str:
    text = value.decode("latin-1")
    return repr(text if len(text) <= _LONGEST_HOST else text[:_LONGEST_HOST] + "...")


@lru_cache(maxsize=256)
def _name_in(host: bytes) -> str:
    """Return the name or address in a Host header, in lower case; empty if it has none.

    The port does not matter: through a tunnel it is another one.
    """
    match = _AUTHORITY.fullmatch(host.decode("latin-1").lower())
    if match is None:
        return ""
    name = match[1]
    if name.startswith("["):
        try:
            IPv6Address(name[1:-1])
        except AddressValueError:
            return ""
    return name


@lru_cache(maxsize=256)
def _is_private(name: str) -> bool:
    """Return whether nobody can register the name publicly: top-level domains consist of letters, or begin with `xn--`."""
    domain, _, last = name.rpartition(".")
    if name.startswith("[") or not domain or name.endswith(_PRIVATE_DOMAINS):
        return True
    return not last.startswith("xn--") and _NO_TOP_LEVEL.search(last) is not None
