"""The forms of names and texts in the Kubernetes API (apimachinery `util/validation`, `pkg/apis/resource/validation`)."""

import re
from typing import Any, Final

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_IDENTIFIER: Final = 32
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRE_RELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
)
HUGE_PAGES_PREFIX: Final = "hugepages-"
NATIVE_DOMAIN: Final = "kubernetes.io/"
QUOTA_PREFIX: Final = "requests."


def is_label(text: Any) -> bool:
    """Return whether this is a DNS label (RFC 1123)."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def is_subdomain(text: Any, longest: int = MAX_SUBDOMAIN) -> bool:
    """Return whether this is a DNS subdomain (RFC 1123) of at most so many characters."""
    return isinstance(text, str) and len(text) <= longest and _SUBDOMAIN.fullmatch(text) is not None


def is_driver_name(text: Any) -> bool:
    """Return whether this names a driver: a DNS subdomain of at most 63 characters, in which capital letters are allowed."""
    return isinstance(text, str) and is_subdomain(text.lower(), MAX_LABEL)


def is_pool_name(text: Any) -> bool:
    """Return whether this is a pool name: DNS subdomains joined by slashes."""
    return isinstance(text, str) and len(text) <= MAX_SUBDOMAIN and all(map(is_subdomain, text.split("/")))


def is_label_key(text: Any) -> bool:
    """Return whether this may be the key of a label: a name, with or without a DNS subdomain and a slash before it."""
    if not isinstance(text, str):
        return False
    domain, slash, name = text.rpartition("/")
    if slash and not is_subdomain(domain):
        return False
    return len(name) <= MAX_LABEL and _NAME.fullmatch(name) is not None


def is_label_value(text: Any) -> bool:
    return isinstance(text, str) and (text == "" or (len(text) <= MAX_LABEL and _NAME.fullmatch(text) is not None))


def is_identifier(text: Any) -> bool:
    """Return whether this is an identifier of C of at most 32 characters."""
    return isinstance(text, str) and len(text) <= MAX_IDENTIFIER and _IDENTIFIER.fullmatch(text) is not None


def is_qualified_name(text: Any) -> bool:
    """Return whether this names an attribute or a capacity: an identifier, with or without a driver's domain and a slash before it.

    The API server accepts any text with two slashes or more.
    """
    if not isinstance(text, str):
        return False
    match text.split("/"):
        case [name]:
            return is_identifier(name)
        case [domain, name]:
            return is_driver_name(domain) and is_identifier(name)
    return True


def is_fully_qualified_name(text: Any) -> bool:
    """Return whether this is a qualified name with a domain."""
    return is_qualified_name(text) and "/" in text


def is_semantic_version(text: Any) -> bool:
    """Return whether this is a version as semver.org 2.0.0 has it."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def is_node_allocatable(text: str) -> bool:
    """Return whether this is a resource for which devices may stand."""
    return text in ("cpu", "memory") or text.startswith(HUGE_PAGES_PREFIX)


def is_extended_resource(text: Any) -> bool:
    if not isinstance(text, str) or "/" not in text or NATIVE_DOMAIN in text or text.startswith(QUOTA_PREFIX):
        return False
    return is_label_key(QUOTA_PREFIX + text)
