"""DeviceTaintRules: taints that an administrator puts on devices of any driver."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from dra_extender.model.api_json import ModelError, Value, reader
from dra_extender.model.device import DeviceId, DeviceTaint
from dra_extender.model.fields import Described, DnsLabel, DriverName, Mark, Name, PoolName
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.resource_claim import Selectors


class DeviceTaintSelector(Value, frozen=True):
    """The devices that a rule taints: an absent field matches every value, a present one exactly itself."""

    driver: DriverName | None = None
    pool: PoolName | None = None
    device: DnsLabel | None = None
    # Served until 1.34; a rule that is narrowed by them must not be read as if it were not.
    device_class_name: Annotated[Name, Mark.FORMER] | None = None
    selectors: Annotated[tuple[Any, ...], Described(Selectors), Mark.FORMER] | None = None

    def concerns(self, driver: str, pool: str) -> bool:
        """Return whether devices of this pool may be meant."""
        return self.driver in (None, driver) and self.pool in (None, pool)

    def selects(self, device_id: DeviceId) -> bool:
        driver, pool, name = device_id
        return self.concerns(driver, pool) and self.device in (None, name)


class DeviceTaintRuleSpec(Value, frozen=True, kw_only=True):
    """`spec` of a DeviceTaintRule."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(Value, frozen=True):
    """A taint that the admin adds to devices of any driver (KEP-5055); the same fields in v1, v1beta2 and v1alpha3.

    A rule without `deviceSelector` and one with an empty selector are different: the first matches no device, the second all.
    """

    unread: ClassVar[Mapping[str, Any]] = {"status": Annotated[Any, Mark.UNCHECKED, Mark.LEFT_OUT]}
    metadata: ObjectMeta
    spec: Annotated[DeviceTaintRuleSpec, Mark.WHOLE]

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def selector(self) -> DeviceTaintSelector | None:
        return self.spec.device_selector


_read_rule = reader("DeviceTaintRule", DeviceTaintRule)


def read_device_taint_rule(data: bytes) -> DeviceTaintRule:
    """Return the rule in `data` (API JSON).

    Raises:
        ModelError: not a DeviceTaintRule, or one that selects by class or CEL, which Kubernetes gave up in 1.35.
    """
    rule = _read_rule(data)
    selector = rule.selector
    if selector is not None and (selector.device_class_name is not None or selector.selectors):
        raise ModelError(
            f"DeviceTaintRule {rule.name}: spec.deviceSelector: expected driver, pool and device only; "
            "deviceClassName and selectors, which Kubernetes 1.34 still knew, are not supported"
        )
    return rule
