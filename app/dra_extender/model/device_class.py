"""DeviceClasses: selectors and configuration that requests name."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from dra_extender.model.allocation import OpaqueConfiguration
from dra_extender.model.api_json import Value, reader
from dra_extender.model.fields import Format, Gate, Items, Mark
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.resource_claim import Selectors

IMPLICIT_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class ClassConfiguration(Value, frozen=True):
    """Configuration that every device of the class gets."""

    opaque: Annotated[OpaqueConfiguration, Mark.REQUIRED] | None = None


class DeviceClassSpec(Value, frozen=True):
    """`spec` of a device class."""

    selectors: Annotated[Selectors, Mark.WHOLE] = ()
    config: Annotated[tuple[ClassConfiguration, ...], Items(max_items=32)] = ()
    extended_resource_name: Annotated[str, Format.EXTENDED_RESOURCE, Gate.EXTENDED_RESOURCES] | None = None


class DeviceClass(Value, frozen=True):
    """A DeviceClass as far as decisions read it."""

    metadata: Annotated[ObjectMeta, Mark.REQUIRED] = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def extended_resources(self) -> tuple[str, ...]:
        """Extended resource names that this class backs (KEP-5004): the implicit one, and the explicit one if set."""
        explicit = self.spec.extended_resource_name
        implicit = IMPLICIT_RESOURCE_PREFIX + self.metadata.name
        return (implicit, explicit) if explicit else (implicit,)


read_device_class = reader("DeviceClass", DeviceClass)


def device_class_from(raw: Mapping[str, Any]) -> DeviceClass:
    """Return a device class from decoded JSON, as `read_device_class` does."""
    return read_device_class(msgspec.json.encode(raw))
