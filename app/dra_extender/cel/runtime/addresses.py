"""IP addresses and networks as Kubernetes reads them: without zones and without IPv4-mapped IPv6 addresses."""

import ipaddress
import re
from typing import Final

import msgspec

_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_LONGEST: Final = 100
"""The most characters of an address."""
_WIDTHS: Final = {4: 32, 6: 128}


class AddressError(ValueError):
    """A text that is no address or network; the message is a sentence that quotes it."""


class IpAddress(msgspec.Struct, frozen=True, gc=False):
    """An address: its family, 4 or 6, and its bits as a number."""

    family: int
    number: int

    @property
    def cel_type(self) -> str:
        """The name of the type in CEL."""
        return "net.IP"

    @property
    def size(self) -> int:
        """Bytes, as cost formulas count them."""
        return _WIDTHS[self.family] // 8

    def __str__(self) -> str:
        return str(ipaddress.IPv4Address(self.number) if self.family == 4 else ipaddress.IPv6Address(self.number))  # noqa: PLR2004 - IPv4

    def within(self, network: "Cidr") -> bool:
        """Whether the first bits are those of the network."""
        shift = _WIDTHS[network.address.family] - network.bits
        return self.family == network.address.family and self.number >> shift == network.address.number >> shift


class Cidr(msgspec.Struct, frozen=True, gc=False):
    """A network: an address, not necessarily the lowest one, and how many of its leading bits count."""

    address: IpAddress
    bits: int

    @property
    def cel_type(self) -> str:
        """The name of the type in CEL."""
        return "net.CIDR"

    @property
    def size(self) -> int:
        """Bytes of the part that counts."""
        return (self.bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def contains(self, other: "Cidr") -> bool:
        """Whether every address of the other network is in this one."""
        return self.bits <= other.bits and other.address.within(self)

    def masked(self) -> "Cidr":
        """The same network, written with its lowest address."""
        shift = _WIDTHS[self.address.family] - self.bits
        return Cidr(IpAddress(self.address.family, self.address.number >> shift << shift), self.bits)


def parse_ip(text: str) -> IpAddress:
    """Read an address.

    Raises:
        AddressError: The text is no address, has a zone, or is an IPv4-mapped IPv6 address.
    """
    if len(text) > _LONGEST:
        raise AddressError(f"IP Address {text[:60]!r} parse error during conversion from string")
    if "%" in text:
        raise AddressError(f"IP address {text[:60]!r} with zone value is not allowed")
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise AddressError(f"IP Address {text[:60]!r} parse error during conversion from string") from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise AddressError(f"IPv4-mapped IPv6 address {text[:60]!r} is not allowed")
    return IpAddress(found.version, int(found))


def parse_cidr(text: str) -> Cidr:
    """Read a network, ADDRESS/BITS.

    Raises:
        AddressError: The text is no network.
    """
    head, slash, bits = text.rpartition("/") if len(text) <= 2 * _LONGEST else (text, "", "")
    address = parse_ip(head)
    if not slash or _BITS.fullmatch(bits) is None or int(bits) > _WIDTHS[address.family]:
        raise AddressError(f"network address parse error during conversion from string: {text[:60]!r}")
    return Cidr(address, int(bits))
