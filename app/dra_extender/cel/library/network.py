"""The Kubernetes libraries of IP addresses and networks."""

from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, first_traversed, first_traversed_twice, tenth
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import TEXT, NativeFunction
from dra_extender.cel.types.declarations import function, method, overload
from dra_extender.cel.types.types import BOOL, CIDR, INT, IP, STRING
from dra_extender.cel.values.network import AddressError, Cidr, IpAddress, parse_cidr, parse_ip
from dra_extender.cel.values.values import size_of


def _ip(text: str) -> IpAddress:
    try:
        return parse_ip(text)
    except AddressError as error:
        raise CelRuntimeError(str(error)) from None


def _is_ip(text: str) -> bool:
    try:
        parse_ip(text)
    except AddressError:
        return False
    return True


def _cidr(text: str) -> Cidr:
    try:
        return parse_cidr(text)
    except AddressError as error:
        raise CelRuntimeError(str(error)) from None


def _is_cidr(text: str) -> bool:
    try:
        parse_cidr(text)
    except AddressError:
        return False
    return True


def _leading(address: IpAddress, four: tuple[int, int], six: tuple[int, int]) -> bool:
    """Whether an address begins with the bits of (number, length) for its family."""
    prefix, length = four if address.family == 4 else six  # noqa: PLR2004 - IPv4
    return address.number >> (address.size * 8 - length) == prefix


def _unspecified(address: IpAddress) -> bool:
    return address.number == 0


def _loopback(address: IpAddress) -> bool:
    return _leading(address, (127, 8), (1, 128))


def _link_local(address: IpAddress) -> bool:
    return _leading(address, (0xA9FE, 16), (0xFE80 >> 6, 10))


def _multicast(address: IpAddress) -> bool:
    return _leading(address, (0xE, 4), (0xFF, 8))


def _link_local_multicast(address: IpAddress) -> bool:
    if address.family == 6:  # noqa: PLR2004 - IPv6, whose flags in between may be anything
        return address.number >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004 - ff?2::/16
    return _leading(address, (0xE00000, 24), (0, 0))


def _global(address: IpAddress) -> bool:
    broadcast = address.family == 4 and address.number == 2**32 - 1  # noqa: PLR2004 - IPv4
    refused = _unspecified(address) or _loopback(address) or _multicast(address) or _link_local(address)
    return not (broadcast or refused)


def _containing(parsed: bool, masked: bool) -> Any:
    """Cost of comparing the network's bytes, of reading the other operand if it is a text, and of masking it."""

    def extra(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
        size = size_of(arguments[0])
        cost = tenth(size * 2) + (tenth(size) + 1 if masked else 0)
        return cost + (tenth(size_of(arguments[1])) if parsed else 0) - 1

    return extra


def _canonical(text: str) -> bool:
    return str(_ip(text)) == text


def _contains_ip(network: Cidr, text: str) -> bool:
    return _ip(text).within(network)


def _contains_cidr(network: Cidr, text: str) -> bool:
    return network.contains(_cidr(text))


def _text_work(*arguments: Any) -> int:
    return _READ_WORK + 8 * min(len(arguments[-1]), _LONG)


_READ_WORK: Final = 300
_LONG: Final = 100
READ_IP: Final = NativeFunction("ip", (TEXT,), _ip, _text_work)
ASK_IP: Final = NativeFunction("isIP", (TEXT,), _is_ip, _text_work)
CANONICAL: Final = NativeFunction("ip.isCanonical", (TEXT,), _canonical, lambda text: 2 * _text_work(text))
READ_CIDR: Final = NativeFunction("cidr", (TEXT,), _cidr, _text_work)
ASK_CIDR: Final = NativeFunction("isCIDR", (TEXT,), _is_cidr, _text_work)
CONTAINS_IP: Final = NativeFunction("containsIP", (CIDR.name, TEXT), _contains_ip, _text_work)
CONTAINS_CIDR: Final = NativeFunction("containsCIDR", (CIDR.name, TEXT), _contains_cidr, _text_work)

FUNCTIONS: Final = (
    function(
        "ip",
        overload((STRING,), IP, READ_IP, extra=first_traversed),
        method((CIDR,), IP, lambda network: network.address),
    ),
    function("isIP", overload((STRING,), BOOL, ASK_IP), extra=first_traversed),
    function("ip.isCanonical", overload((STRING,), BOOL, CANONICAL), extra=first_traversed_twice),
    function("family", method((IP,), INT, lambda address: address.family)),
    function("isUnspecified", method((IP,), BOOL, _unspecified)),
    function("isLoopback", method((IP,), BOOL, _loopback)),
    function("isLinkLocalMulticast", method((IP,), BOOL, _link_local_multicast)),
    function("isLinkLocalUnicast", method((IP,), BOOL, _link_local)),
    function("isGlobalUnicast", method((IP,), BOOL, _global)),
    function("cidr", overload((STRING,), CIDR, READ_CIDR), extra=first_traversed),
    function("isCIDR", overload((STRING,), BOOL, ASK_CIDR), extra=first_traversed),
    function(
        "containsIP",
        method((CIDR, STRING), BOOL, CONTAINS_IP, extra=_containing(True, False)),
        method((CIDR, IP), BOOL, lambda network, address: address.within(network), extra=_containing(False, False)),
    ),
    function(
        "containsCIDR",
        method((CIDR, STRING), BOOL, CONTAINS_CIDR, extra=_containing(True, True)),
        method((CIDR, CIDR), BOOL, lambda network, other: network.contains(other), extra=_containing(False, True)),
    ),
    function("prefixLength", method((CIDR,), INT, lambda network: network.bits)),
    function("masked", method((CIDR,), CIDR, lambda network: network.masked())),
    function("string", overload((IP,), STRING, str), overload((CIDR,), STRING, str)),
)
