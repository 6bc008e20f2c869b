from typing import Any

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.device import DeviceTaint
from dra_extender.model.metadata import ObjectMeta


class DeviceTaintSelector(Value, frozen=True):
    """Which devices a rule taints: an absent field matches every value, a present one exactly itself."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    # Served until 1.34; a rule that is narrowed by them must not be read as if it were not.
    device_class_name: str | None = None
    selectors: tuple[Any, ...] | None = None

    def concerns(self, driver: str, pool: str) -> bool:
        """Whether devices of this pool may be meant."""
        return self.driver in (None, driver) and self.pool in (None, pool)


class DeviceTaintRuleSpec(Value, frozen=True):
    """`spec` of a DeviceTaintRule."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Value, frozen=True):
    """A taint that the admin adds to devices of any driver (KEP-5055); the same fields in v1, v1beta2 and v1alpha3.

    A rule without `deviceSelector` and one with an empty selector are different: the first matches no device, the second all.
    """

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def selector(self) -> DeviceTaintSelector | None:
        """The selector; None if the rule has none."""
        return self.spec.device_selector


_DECODER = msgspec.json.Decoder(DeviceTaintRule)


def read_device_taint_rule(data: bytes) -> DeviceTaintRule:
    """The rule in `data` (API JSON).

    Raises:
        ModelError: not a DeviceTaintRule, or one that selects by class or CEL, which Kubernetes gave up in 1.35.
    """
    rule = decode("DeviceTaintRule", _DECODER, data)
    selector = rule.selector
    if selector is not None and (selector.device_class_name is not None or selector.selectors):
        raise ModelError(
            f"DeviceTaintRule {rule.name}: spec.deviceSelector: expected driver, pool and device only; "
            "deviceClassName and selectors, which Kubernetes 1.34 still knew, are not supported"
        )
    return rule
