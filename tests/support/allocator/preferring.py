"""Configuration of a claim or a class that prefers devices which agree in attributes."""

from tests.support.allocator.building import Json


def preferring(*attributes: str, requests: tuple[str, ...] = ()) -> Json:
    """An entry of `config`."""
    parameters = {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": [*attributes]}
    named = {"requests": [*requests]} if requests else {}
    return {**named, "opaque": {"driver": "dra-extender.io", "parameters": parameters}}
