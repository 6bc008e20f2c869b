"""The libraries of Kubernetes: quantities, versions, URLs, IP addresses and networks, named formats, authorization."""

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.cost import EvaluationFrame, Extra, first_traversed, first_traversed_twice, tenth
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.types.declarations import Function, function, method, overload, unimplemented
from dra_extender.cel.types.types import (
    BOOL,
    CIDR,
    DOUBLE,
    INT,
    IP,
    NAMED_FORMAT,
    QUANTITY,
    SEMVER,
    STRING,
    URL,
    Type,
    list_of,
    map_of,
    opaque,
    optional_of,
)
from dra_extender.cel.values.integers import MAX_INT
from dra_extender.cel.values.named_formats import FORMATS, NamedFormat
from dra_extender.cel.values.network import (
    IpAddress,
    Url,
    UrlError,
    check_url,
    parse_cidr,
    parse_ip,
    parse_url,
    url_work,
)
from dra_extender.cel.values.quantity import (
    MAX_LENGTH,
    Quantity,
    QuantityError,
    added,
    as_float,
    as_integer,
    quantity,
    read_quantity,
    subtracted,
    whole_number,
)
from dra_extender.cel.values.semver import LONGEST_VERSION, Semver, SemverError, parse_lenient, parse_semver
from dra_extender.cel.values.values import Optional, optional, size_of


def _succeeds(read: Callable[..., Any], failure: type[Exception] = CelRuntimeError) -> Callable[..., bool]:
    """Return a function that says whether its arguments can be read."""

    def succeeds(*arguments: Any) -> bool:
        try:
            read(*arguments)
        except failure:
            return False
        return True

    return succeeds


# Quantities

_SCALE: Final = 18
_AMOUNT_WORK: Final = 60
_DECIMAL_WORK: Final = 200
"""The work of numbers with up to two thousand digits."""
_QUANTITIES: Final = (QUANTITY, QUANTITY)


def _as_integer(value: Quantity) -> int:
    number = as_integer(value)
    if number is None:
        raise CelRuntimeError("cannot convert value to integer")
    return number


def _quantity_work(text: str) -> int:
    return 150 + 2 * min(len(text), MAX_LENGTH) + (len(text) >> 8)


def _amount_work(*amounts: Quantity) -> int:
    return _DECIMAL_WORK if any(amount.decimal or amount.scale > _SCALE for amount in amounts) else _AMOUNT_WORK


READ_QUANTITY: Final = NativeFunction("quantity", quantity, _quantity_work)
ASK_QUANTITY: Final = NativeFunction("isQuantity", _succeeds(read_quantity, QuantityError), _quantity_work)
ADD: Final = NativeFunction("add", added, _amount_work)
SUBTRACT: Final = NativeFunction("sub", subtracted, _amount_work)
AS_FLOAT: Final = NativeFunction("asApproximateFloat", as_float, _amount_work)

_QUANTITY_FUNCTIONS: Final = (
    function("quantity", overload((STRING,), QUANTITY, READ_QUANTITY), extra=first_traversed),
    function("isQuantity", overload((STRING,), BOOL, ASK_QUANTITY), extra=first_traversed),
    function("sign", overload((QUANTITY,), INT, lambda value: (value.nano > 0) - (value.nano < 0))),
    function("isGreaterThan", method(_QUANTITIES, BOOL, lambda left, right: left.nano > right.nano)),
    function("isLessThan", method(_QUANTITIES, BOOL, lambda left, right: left.nano < right.nano)),
    function(
        "compareTo", method(_QUANTITIES, INT, lambda left, right: (left.nano > right.nano) - (left.nano < right.nano))
    ),
    function("asInteger", method((QUANTITY,), INT, _as_integer)),
    function("isInteger", method((QUANTITY,), BOOL, lambda value: as_integer(value) is not None)),
    function("asApproximateFloat", method((QUANTITY,), DOUBLE, AS_FLOAT)),
    function(
        "add",
        method(_QUANTITIES, QUANTITY, ADD),
        method((QUANTITY, INT), QUANTITY, lambda left, number: added(left, whole_number(number)), work=_AMOUNT_WORK),
    ),
    function(
        "sub",
        method(_QUANTITIES, QUANTITY, SUBTRACT),
        method(
            (QUANTITY, INT), QUANTITY, lambda left, number: subtracted(left, whole_number(number)), work=_AMOUNT_WORK
        ),
    ),
)


# Semantic versions

_LENIENT: Final = (STRING, BOOL)
_VERSIONS: Final = (SEMVER, SEMVER)


def _semver(text: str, normalise: bool = False) -> Semver:
    try:
        return parse_lenient(text) if normalise else parse_semver(text)
    except SemverError as error:
        raise CelRuntimeError(str(error)) from None


def _wrapped(number: int) -> int:
    """Return the number as CEL sees it: versions hold unsigned numbers, CEL takes them as signed ones."""
    return number if number <= MAX_INT else number - 2**64


def _semver_work(text: str, *_: bool) -> int:
    return 120 + 12 * min(len(text), LONGEST_VERSION) + (len(text) >> 3)


def _version_order_work(left: Semver, right: Semver) -> int:
    return 3 * min(len(left.text), len(right.text))


READ_SEMVER: Final = NativeFunction("semver", _semver, _semver_work)
ASK_SEMVER: Final = NativeFunction("isSemver", _succeeds(_semver), _semver_work)
GREATER: Final = NativeFunction(
    "isGreaterThan of versions", lambda left, right: left.key > right.key, _version_order_work
)
LESS: Final = NativeFunction("isLessThan of versions", lambda left, right: left.key < right.key, _version_order_work)
COMPARE: Final = NativeFunction(
    "compareTo of versions",
    lambda left, right: (left.key > right.key) - (left.key < right.key),
    lambda left, right: 2 * _version_order_work(left, right),
)

_SEMVER_FUNCTIONS: Final = (
    function(
        "semver",
        overload((STRING,), SEMVER, READ_SEMVER),
        overload(_LENIENT, SEMVER, READ_SEMVER),
        extra=first_traversed,
    ),
    function(
        "isSemver", overload((STRING,), BOOL, ASK_SEMVER), overload(_LENIENT, BOOL, ASK_SEMVER), extra=first_traversed
    ),
    function("isGreaterThan", method(_VERSIONS, BOOL, GREATER)),
    function("isLessThan", method(_VERSIONS, BOOL, LESS)),
    function("compareTo", method(_VERSIONS, INT, COMPARE)),
    function("major", method((SEMVER,), INT, lambda version: _wrapped(version.major))),
    function("minor", method((SEMVER,), INT, lambda version: _wrapped(version.minor))),
    function("patch", method((SEMVER,), INT, lambda version: _wrapped(version.patch))),
)


# URLs


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except UrlError as error:
        raise CelRuntimeError(f"URL parse error during conversion from string: {error}") from None


def _parameters(frame: EvaluationFrame, url: Url) -> dict[str, list[str]]:
    frame.spend(60 + 5 * len(url.query))
    return url.parameters()


READ_URL: Final = NativeFunction("url", _url, url_work)
ASK_URL: Final = NativeFunction("isURL", _succeeds(check_url, UrlError), lambda text: url_work(text) >> 1)
HOST_NAME: Final = NativeFunction("getHostname", lambda url: url.split_host()[0], lambda url: 10 + (len(url.host) >> 3))
PORT: Final = NativeFunction("getPort", lambda url: url.split_host()[1], lambda url: 10 + (len(url.host) >> 3))

_URL_FUNCTIONS: Final = (
    function("url", overload((STRING,), URL, READ_URL), extra=first_traversed),
    function("isURL", overload((STRING,), BOOL, ASK_URL)),
    function("getScheme", method((URL,), STRING, lambda url: url.scheme)),
    function("getHost", method((URL,), STRING, lambda url: url.host)),
    function("getHostname", method((URL,), STRING, HOST_NAME)),
    function("getPort", method((URL,), STRING, PORT)),
    function("getEscapedPath", method((URL,), STRING, lambda url: url.path)),
    function("getQuery", method((URL,), map_of(STRING, list_of(STRING)), _parameters, metered=True)),
)


# IP addresses and networks

_IPV4: Final = 4
_LONG_ADDRESS: Final = 100


def _begins_with(address: IpAddress, four: tuple[int, int], six: tuple[int, int]) -> bool:
    """Return whether an address begins with the bits of (number, length) for its family."""
    prefix, length = four if address.family == _IPV4 else six
    return address.number >> (address.size * 8 - length) == prefix


def _loopback(address: IpAddress) -> bool:
    return _begins_with(address, (127, 8), (1, 128))


def _link_local(address: IpAddress) -> bool:
    return _begins_with(address, (0xA9FE, 16), (0xFE80 >> 6, 10))


def _link_local_multicast(address: IpAddress) -> bool:
    if address.family == _IPV4:
        return _begins_with(address, (0xE00000, 24), (0, 0))
    return address.number >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004 - ff?2::/16, whose flags in between may be anything


def _global(address: IpAddress) -> bool:
    multicast = _begins_with(address, (0xE, 4), (0xFF, 8))
    broadcast = address.family == _IPV4 and address.number == 2**32 - 1
    return not (broadcast or address.number == 0 or _loopback(address) or multicast or _link_local(address))


def _containing(parsed: bool, masked: bool) -> Extra:
    """Return the cost of comparing the network's bytes, of reading the other operand if it is a text, and of masking it."""

    def extra(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
        size = size_of(arguments[0])
        cost = tenth(size * 2) + (tenth(size) + 1 if masked else 0)
        return cost + (tenth(size_of(arguments[1])) if parsed else 0) - 1

    return extra


def _address_work(*arguments: Any) -> int:
    return 300 + 8 * min(len(arguments[-1]), _LONG_ADDRESS)


READ_IP: Final = NativeFunction("ip", parse_ip, _address_work)
ASK_IP: Final = NativeFunction("isIP", _succeeds(parse_ip), _address_work)
CANONICAL: Final = NativeFunction(
    "ip.isCanonical", lambda text: str(parse_ip(text)) == text, lambda text: 2 * _address_work(text)
)
READ_CIDR: Final = NativeFunction("cidr", parse_cidr, _address_work)
ASK_CIDR: Final = NativeFunction("isCIDR", _succeeds(parse_cidr), _address_work)
CONTAINS_IP: Final = NativeFunction("containsIP", lambda network, text: parse_ip(text).within(network), _address_work)
CONTAINS_CIDR: Final = NativeFunction(
    "containsCIDR", lambda network, text: network.contains(parse_cidr(text)), _address_work
)
WRITE_IP: Final = NativeFunction("string of an address", str, lambda address: 8 * address.size)
WRITE_CIDR: Final = NativeFunction("string of a network", str, lambda network: 8 * network.address.size)

_NETWORK_FUNCTIONS: Final = (
    function(
        "ip",
        overload((STRING,), IP, READ_IP, extra=first_traversed),
        method((CIDR,), IP, lambda network: network.address),
    ),
    function("isIP", overload((STRING,), BOOL, ASK_IP), extra=first_traversed),
    function("ip.isCanonical", overload((STRING,), BOOL, CANONICAL), extra=first_traversed_twice),
    function("family", method((IP,), INT, lambda address: address.family)),
    function("isUnspecified", method((IP,), BOOL, lambda address: address.number == 0)),
    function("isLoopback", method((IP,), BOOL, _loopback)),
    function("isLinkLocalMulticast", method((IP,), BOOL, _link_local_multicast)),
    function("isLinkLocalUnicast", method((IP,), BOOL, _link_local)),
    function("isGlobalUnicast", method((IP,), BOOL, _global, work=24)),
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
        method((CIDR, CIDR), BOOL, lambda network, subnet: network.contains(subnet), extra=_containing(False, True)),
    ),
    function("prefixLength", method((CIDR,), INT, lambda network: network.bits)),
    function("masked", method((CIDR,), CIDR, lambda network: network.masked())),
    function("string", overload((IP,), STRING, WRITE_IP), overload((CIDR,), STRING, WRITE_CIDR)),
)


# Named formats


def _validation_work(form: NamedFormat, text: str) -> int:
    return 200 + (url_work(text) // 2 + 24 * len(text) if form.name == "URI" else 8 * len(text))


def _validate(frame: EvaluationFrame, form: NamedFormat, text: str) -> Optional:
    return optional(VALIDATE.call(frame, form, text) or None)


def _validated(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of running a pattern of the format's size over the text."""
    form, text = arguments
    return tenth(1 + size_of(text)) * -(-form.pattern_size // 4) - 1 if type(form) is NamedFormat else 0


VALIDATE: Final = NativeFunction("validate", lambda form, text: form.problems(text), _validation_work)

_FORMAT_FUNCTIONS: Final = (
    function("format.named", overload((STRING,), optional_of(NAMED_FORMAT), lambda name: optional(FORMATS.get(name)))),
    function(
        "validate",
        method((NAMED_FORMAT, STRING), optional_of(list_of(STRING)), _validate, metered=True),
        extra=_validated,
    ),
    *(function(f"format.{name}", overload((), NAMED_FORMAT, lambda form=form: form)) for name, form in FORMATS.items()),
)


# Authorization: device selectors have no variable of these types, so no call can be made.

_AUTHORIZER: Final = opaque("kubernetes.authorization.Authorizer")
_PATH: Final = opaque("kubernetes.authorization.PathCheck")
_GROUP: Final = opaque("kubernetes.authorization.GroupCheck")
_RESOURCE: Final = opaque("kubernetes.authorization.ResourceCheck")
_DECISION: Final = opaque("kubernetes.authorization.Decision")


def _selector(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of parsing a selector: a tenth per character, and 50 for every two characters, a requirement."""
    length = size_of(arguments[1])
    return 10 - (-length // 10) + -(-length // 2) * 50 - 1


def _declared(name: str, result: Type, *parameters: tuple[Type, ...], extra: Extra | None = None) -> Function:
    return function(name, *(method(kinds, result, unimplemented) for kinds in parameters), extra=extra)


_AUTHORIZATION_FUNCTIONS: Final = (
    _declared("path", _PATH, (_AUTHORIZER, STRING)),
    _declared("group", _GROUP, (_AUTHORIZER, STRING)),
    _declared("serviceAccount", _AUTHORIZER, (_AUTHORIZER, STRING, STRING)),
    _declared("resource", _RESOURCE, (_GROUP, STRING)),
    _declared("subresource", _RESOURCE, (_RESOURCE, STRING)),
    _declared("namespace", _RESOURCE, (_RESOURCE, STRING)),
    _declared("name", _RESOURCE, (_RESOURCE, STRING)),
    _declared("check", _DECISION, (_PATH, STRING), (_RESOURCE, STRING), extra=lambda *_: 350_000 - 1),
    _declared("errored", BOOL, (_DECISION,)),
    _declared("error", STRING, (_DECISION,)),
    _declared("allowed", BOOL, (_DECISION,)),
    _declared("reason", STRING, (_DECISION,)),
    _declared("fieldSelector", _RESOURCE, (_RESOURCE, STRING), extra=_selector),
    _declared("labelSelector", _RESOURCE, (_RESOURCE, STRING), extra=_selector),
)

FUNCTIONS: Final = (
    *_QUANTITY_FUNCTIONS,
    *_SEMVER_FUNCTIONS,
    *_URL_FUNCTIONS,
    *_NETWORK_FUNCTIONS,
    *_FORMAT_FUNCTIONS,
    *_AUTHORIZATION_FUNCTIONS,
)
