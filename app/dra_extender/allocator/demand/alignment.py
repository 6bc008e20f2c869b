"""Soft alignment: attributes in which the devices of a claim should agree where they can, never a reason to wait.

Opaque configuration of our domain, in a claim or a DeviceClass, says so:

    config:
    - requests: [gpu]
      opaque:
        driver: dra-extender.io
        parameters:
          apiVersion: dra-extender.io/v1
          kind: DevicePreferences
          matchAttributes: [resource.kubernetes.io/pcieRoot]
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec

from dra_extender.allocator.demand.constraints import REFUSED, Constraint
from dra_extender.cel.device import Attribute
from dra_extender.model.allocation import OpaqueConfiguration

DOMAIN: Final = "dra-extender.io"
API_VERSION: Final = f"{DOMAIN}/v1"
KIND: Final = "DevicePreferences"
MOST_PREFERENCES: Final = 4
"""Preferences of one claim that count; those after them are ignored."""
LONGEST_NAME: Final = 286
"""A domain of 253 characters, a slash and a name of 32."""
NAME: Final = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*\Z"


AttributeName = Annotated[str, msgspec.Meta(pattern=NAME, max_length=LONGEST_NAME)]
PolicyPreferences = tuple[tuple[str, tuple[str, ...]], ...]
"""By DeviceClass, the attributes in which an administrator's policy prefers the devices of a claim to agree."""


class DevicePreferences(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The parameters: attributes in which the devices should agree, the most important first."""

    api_version: str
    kind: str
    match_attributes: Annotated[
        tuple[AttributeName, ...],
        msgspec.Meta(min_length=1, max_length=MOST_PREFERENCES),
    ]


class PreferencesError(ValueError):
    """Parameters of our domain that are no preferences; the message says what is wrong."""


_DECODER: Final = msgspec.json.Decoder(DevicePreferences)


def read_preferences(parameters: bytes) -> DevicePreferences:
    """Read parameters of our domain.

    Raises:
        PreferencesError: they are something else.
    """
    try:
        preferences = _DECODER.decode(parameters)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise PreferencesError(str(problem)) from problem
    if (preferences.api_version, preferences.kind) != (API_VERSION, KIND):
        raise PreferencesError(f"expected apiVersion {API_VERSION} and kind {KIND}")
    return preferences


def preferred_constraints(
    opaque: OpaqueConfiguration | None, requests: tuple[str, ...], *, lists: bool
) -> Iterator[Constraint]:
    """Yield the constraints that a configuration prefers for these requests (none: all); nothing if it is not of our domain.

    What cannot be read is ignored: a preference keeps no pod waiting.
    """
    if opaque is None or opaque.driver != DOMAIN:
        return
    try:
        preferences = read_preferences(bytes(opaque.parameters))
    except PreferencesError:
        return
    yield from match_constraints(preferences.match_attributes, requests, lists=lists)


def match_constraints(attributes: Iterable[str], requests: tuple[str, ...], *, lists: bool) -> Iterator[Constraint]:
    """Yield for each attribute the constraint that devices of these requests (none: all) agree in it."""
    for attribute in attributes:
        yield Constraint(attribute=attribute, distinct=False, requests=requests, lists=lists)


def meets(constraint: Constraint, attributes: Iterable[Attribute | None]) -> bool:
    """Return whether devices with these attributes (None: a device without it) meet a constraint."""
    state: Any = None
    for attribute in attributes:
        state = constraint.state_with(state, attribute)
        if state is REFUSED:
            return False
    return True
