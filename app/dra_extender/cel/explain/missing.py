"""Messages about an attribute, capacity or key that does not exist, with what the device or the map has instead."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from dra_extender.cel.explain.values import MOST_ITEMS, shown
from dra_extender.cel.runtime.device import DeviceActivation
from dra_extender.cel.runtime.values import MAPS, DomainMap, from_map_key
from dra_extender.cel.syntax.printer import access_expression, text_literal
from dra_extender.model.api_json import listed

_KINDS: Final = {"attributes": "attribute", "capacity": "capacity"}
_NAMED: Final = 2


def missing_attribute_message(device: DeviceActivation, path: tuple[str, ...]) -> str:
    """The message about a path below `device`, such as ("attributes", domain, name), that does not exist; empty for others."""
    kind, *rest = path
    if kind not in _KINDS or len(rest) != _NAMED:
        return ""
    domain, name = rest
    domains = _domains(device, kind)
    noun = _KINDS[kind]
    if domain not in domains:
        return f"the device has no {noun} of domain {text_literal(domain)}; {_other_domain(device, kind, domain, name)}"
    missing = f"the device has no {noun} {text_literal(name)} of domain {text_literal(domain)}"
    return f"{missing}; {_other_name(device, kind, domain, name)}"


def missing_key_message(value: Any, key: object) -> str:
    """The message about a missing key, with the keys that the map has; empty for values that are no maps."""
    if type(value) not in MAPS:
        return ""
    names = [shown(from_map_key(each)) for each in value]
    return f"there is no {shown(key)}; {_choice(names, shown(key)) or 'the map is empty'}"


def _domains(device: DeviceActivation, kind: str) -> DomainMap:
    return device.attributes if kind == "attributes" else device.capacity


def _other_domain(device: DeviceActivation, kind: str, domain: str, name: str) -> str:
    domains = _domains(device, kind)
    own = domains.get(device.driver, {})
    if domain in own:
        return f"did you mean {access_expression(kind, device.driver, domain)}?"
    before, slash, after = domain.partition("/")
    if slash and after in domains.get(before, {}):
        return f"did you mean {access_expression(kind, before, after)}?"
    elsewhere = _elsewhere(device, kind, name)
    return elsewhere or _choice(list(domains), domain) or "it has none at all"


def _other_name(device: DeviceActivation, kind: str, domain: str, name: str) -> str:
    names = list(_domains(device, kind)[domain])
    return _elsewhere(device, kind, name) or _choice(names, name) or "it has none there"


def _elsewhere(device: DeviceActivation, kind: str, name: str) -> str:
    """The same name under the other kind, or in another domain."""
    for other in sorted(_KINDS, key=lambda each: each != kind):
        for domain, names in _domains(device, other).items():
            if name in names:
                return f"did you mean {access_expression(other, domain, name)}?"
    return ""


def _choice(names: list[str], wanted: str) -> str:
    """The most similar name if there is one, and the names that exist."""
    if not names:
        return ""
    folded: Mapping[str, str] = {name.casefold(): name for name in sorted(names)}
    close = get_close_matches(wanted.casefold(), list(folded), n=1, cutoff=0.6)
    hint = f"did you mean {folded[close[0]]}? " if close else ""
    known = listed(sorted(names), MOST_ITEMS)
    return f"{hint}It has {known}" if hint else f"it has {known}"
