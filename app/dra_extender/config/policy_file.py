"""The admin's policy file: YAML in, rules for the overlay out, or sentences about everything that is wrong with it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from dra_extender.allocator.demand.alignment import LONGEST_NAME, MOST_PREFERENCES, NAME
from dra_extender.allocator.fragmentation.kinds import MOST_KINDS, ExpectedPod, NodeAmounts
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import Program, compile_expression
from dra_extender.cel.values.quantity import NANO, QuantityError, parse_quantity
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.manifests.documents import MOST_BYTES, FieldPath, YamlBounds, YamlError, load_yaml
from dra_extender.manifests.problems import YAML_TYPES, FieldProblem, path_text, sentence_of, shown, unknown_field
from dra_extender.model.resource_claim import (
    CapacityRequests,
    CelSelector,
    ClaimSpec,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestBody,
    DeviceSelector,
    ResourceClaim,
)

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_MOST_CONDITIONS: Final = 4
MOST_RULES: Final = 256
_BOUNDS: Final = YamlBounds(values=64 * MOST_RULES, items=MOST_RULES, documents=8)
"""What is beyond them is refused before the rest of the file is parsed; a rule with every field and item has 32 values."""
_MOST_PROBLEMS: Final = 64

Problem = tuple[FieldPath, str]


class InvalidPolicyError(InvalidSettingsError):
    """The policy file cannot be used; the message names file, field and what was expected, for each thing that is wrong.

    `problems` has the same by field; it is empty where no field is to blame.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MissingPolicyError(InvalidPolicyError):
    """There is no such file."""


def _attribute(text: str) -> str:
    if len(text) > LONGEST_NAME or not re.fullmatch(NAME, text):
        raise ValueError(f"expected an attribute with its domain, such as example.com/numa, got {shown(text)}")
    return text


Label = Annotated[str, StringConstraints(pattern=_LABEL, max_length=63)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Attribute = Annotated[str, AfterValidator(_attribute)]
Amount = Annotated[str | int | float, Field(union_mode="left_to_right")]
Expression = Annotated[str, StringConstraints(min_length=1, max_length=10 * 1024)]


class PolicyModel(BaseModel):
    """Base of what an administrator writes: other fields are refused, and no value is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)


class NeighboursModel(PolicyModel):
    """Which devices count as neighbours, as written."""

    within: Literal["pool", "node"] = "pool"
    devices: Expression | None = None


class RuleModel(PolicyModel):
    """One rule as written."""

    name: Label
    driver: Text | None = None
    pool: Text | None = None
    devices: Expression | None = None
    counter_set: Text | None = None
    compatibility_groups: list[Label] | None = Field(None, min_length=1, max_length=8)
    physical_device: Expression | None = None
    binding_conditions: list[Text] | None = Field(None, min_length=1, max_length=_MOST_CONDITIONS)
    binding_failure_conditions: list[Text] | None = Field(None, min_length=1, max_length=_MOST_CONDITIONS)
    binds_to_node: Literal[True] | None = None
    compatible_only_with: Expression | None = None
    neighbours: NeighboursModel | None = None


class PreferenceModel(PolicyModel):
    """Attributes in which the devices of a class should agree, as written."""

    device_class: Text
    match_attributes: list[Attribute] = Field(min_length=1, max_length=MOST_PREFERENCES)


class ExpectedDevicesModel(PolicyModel):
    """Devices that an expected pod asks for, as written."""

    device_class_name: Text
    count: int = Field(1, ge=1, le=32)
    capacity: dict[Text, Amount] | None = Field(None, max_length=32)
    selector: Expression | None = None


class ExpectedPodModel(PolicyModel):
    """A pod that is expected, as written."""

    name: Label
    weight: float = Field(1.0, gt=0, le=1_000_000)
    cpu: Amount = 0
    memory: Amount = 0
    devices: list[ExpectedDevicesModel] = Field(min_length=1, max_length=8)


class FileModel(PolicyModel):
    """The whole file as written."""

    version: Literal[1] = 1
    rules: list[RuleModel] = Field(default_factory=list, max_length=MOST_RULES)
    preferences: list[PreferenceModel] = Field(default_factory=list, max_length=MOST_RULES)
    expected: list[ExpectedPodModel] = Field(default_factory=list, max_length=MOST_KINDS)


_SUPPLIED: Final = (
    "compatibilityGroups",
    "physicalDevice",
    "bindingConditions",
    "bindsToNode",
    "compatibleOnlyWith",
)
_TYPES: Final[Mapping[str, str]] = {
    **YAML_TYPES,
    "string_pattern_mismatch": "lower case letters, digits and '-', at most 63 characters",
}
_LITERALS: Final[Mapping[str, str]] = {
    "bindsToNode": "true, or the field left out",
    "within": "pool or node",
    "version": "1",
}


def read_policy(path: Path, *, compatibility_groups: bool = True) -> PolicyOverlay:
    """Read the policy in this file.  With the feature of that name off, rules about what may be allocated together are left out.

    Raises:
        MissingPolicyError: there is no such file.
        InvalidPolicyError: it cannot be read, or something in it is wrong; see `parse_policy`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError as problem:
        raise MissingPolicyError(f"policy file {path}: it does not exist") from problem
    except OSError as problem:
        raise InvalidPolicyError(f"policy file {path}: {problem.strerror}") from problem
    return parse_policy(data, f"policy file {path}", compatibility_groups=compatibility_groups)


def parse_policy(data: bytes, source: str, *, compatibility_groups: bool = True) -> PolicyOverlay:
    """Parse a policy as `read_policy` does, from a text in UTF-8; messages begin with `source`, which says where the text is from.

    Raises:
        InvalidPolicyError: the text is no policy, or is too large; the message names what is wrong, 64 things at most.
    """
    try:
        documents = load_yaml(data, _BOUNDS)
    except YamlError as problem:
        raise InvalidPolicyError(f"{source}: {problem}") from problem
    if len(documents) > 1:
        raise InvalidPolicyError(f"{source}: expected YAML: one document, found {len(documents)}")
    return _policy(source, documents[0] if documents else {}, groups=compatibility_groups)


def _policy(source: str, loaded: Any, *, groups: bool) -> PolicyOverlay:
    if not isinstance(loaded, dict):
        raise InvalidPolicyError(f"{source}: expected a mapping with the field rules, got {shown(loaded)}")
    try:
        file_model = FileModel.model_validate(loaded)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        problems = [(error["loc"], _sentence(error)) for error in errors[:_MOST_PROBLEMS]]
        raise _bad(source, loaded, problems, len(errors)) from invalid
    compiled = [_Compiled(index, rule) for index, rule in enumerate(file_model.rules)]
    classes = [preference.device_class for preference in file_model.preferences]
    problems = [
        *_repeated("rules", "name", [rule.name for rule in file_model.rules], "a name that no other rule has"),
        *_repeated(
            "expected", "name", [pod.name for pod in file_model.expected], "a name that no other expected pod has"
        ),
        *(problem for rule in compiled for problem in rule.problems),
        *_repeated("preferences", "deviceClass", classes, "a class that no other preference is about"),
        *(problem for index, pod in enumerate(file_model.expected) for problem in _expected_problems(index, pod)),
    ]
    if problems:
        raise _bad(source, loaded, problems[:_MOST_PROBLEMS], len(problems))
    return PolicyOverlay(
        [rule.rule(groups=groups) for rule in compiled],
        tuple((preference.device_class, tuple(preference.match_attributes)) for preference in file_model.preferences),
        tuple(map(_expected_pod, file_model.expected)),
    )


def _expected_problems(index: int, pod: ExpectedPodModel) -> Iterator[Problem]:
    where: FieldPath = ("expected", index)
    amounts = [((*where, "cpu"), pod.cpu), ((*where, "memory"), pod.memory)]
    for place, devices in enumerate(pod.devices):
        path_of_devices: FieldPath = (*where, "devices", place)
        amounts += [((*path_of_devices, "capacity", name), amount) for name, amount in (devices.capacity or {}).items()]
        if devices.selector is not None:
            try:
                compile_expression(devices.selector)
            except CelCompileError as problem:
                yield (*path_of_devices, "selector"), _expected_expression("true or false", devices.selector, problem)
    for path, amount in amounts:
        try:
            parsed = parse_quantity(str(amount))
        except QuantityError:
            parsed = -1
        if parsed < 0:
            yield path, f"expected a quantity such as 500m or 64Gi, got {amount!r}"


def _expected_expression(result: str, expression: str, problem: CelCompileError) -> str:
    sentence = f"expected a CEL expression that gives {result}, got {expression!r}: {problem.reason}"
    return " ".join(sentence.split())


def _expected_pod(pod: ExpectedPodModel) -> ExpectedPod:
    requests = tuple(
        DeviceRequest(
            name=f"devices-{place}",
            exactly=DeviceRequestBody(
                device_class_name=devices.device_class_name,
                allocation_mode="ExactCount",
                count=devices.count,
                selectors=()
                if devices.selector is None
                else (DeviceSelector(cel=CelSelector(expression=devices.selector)),),
                capacity=None
                if devices.capacity is None
                else CapacityRequests(requests={name: str(amount) for name, amount in devices.capacity.items()}),
            ),
        )
        for place, devices in enumerate(pod.devices)
    )
    claim = ResourceClaim(spec=ClaimSpec(devices=DeviceClaim(requests=requests)))
    amounts = NodeAmounts(parse_quantity(str(pod.cpu)) // (NANO // 1_000), parse_quantity(str(pod.memory)) // NANO)
    return ExpectedPod(pod.name, pod.weight, amounts, claim)


class _Compiled:
    """One rule with its expressions compiled, or with what is wrong with it."""

    def __init__(self, index: int, model: RuleModel) -> None:
        self._where: FieldPath = ("rules", index)
        self._model = model
        self.problems: list[Problem] = [*self._contradictions()]
        self._devices = self._program("devices", model.devices)
        self._physical = self._program("physicalDevice", model.physical_device, text=True)
        self._program("compatibleOnlyWith", model.compatible_only_with)
        self._only_with = self._narrowed()

    def _narrowed(self) -> str | None:
        """Return `compatibleOnlyWith` as an expression that is true for every device that is not among the `neighbours`.

        A device for which the selector fails counts as a neighbour, unless the expression is true for it.
        """
        only, neighbours = self._model.compatible_only_with, self._model.neighbours
        if only is None or neighbours is None or neighbours.devices is None:
            return only
        sound = self._program("neighbours", neighbours.devices, part="devices")
        # A comment of CEL ends with its line.
        end = "\n" if "//" in only + neighbours.devices else ""
        narrowed = f"!({neighbours.devices}{end}) || ({only}{end})"
        if sound is not None and not self.problems:
            self._program("neighbours", narrowed)
        return narrowed

    def rule(self, *, groups: bool) -> PolicyRule:
        model = self._model
        return PolicyRule(
            name=model.name,
            driver=model.driver,
            pool=model.pool,
            devices=self._devices,
            counter_set=model.counter_set,
            compatibility_groups=tuple(model.compatibility_groups or ()) if groups else (),
            physical_device=self._physical if groups else None,
            binding_conditions=tuple(model.binding_conditions or ()),
            binding_failure_conditions=tuple(model.binding_failure_conditions or ()),
            binds_to_node=bool(model.binds_to_node),
            compatible_only_with=self._only_with if groups else None,
            neighbours_on=model.neighbours.within if groups and model.neighbours is not None else "",
        )

    def _program(
        self, field: str, expression: str | None, *, text: bool = False, part: str | None = None
    ) -> Program | None:
        if expression is None:
            return None
        expected = "a text" if text else "true or false"
        try:
            if text:
                # What can never be a text is no operand for this comparison.
                compile_expression(f"({expression}\n) == ''")
            return compile_expression(expression, derived=text)
        except CelCompileError as problem:
            where = (*self._where, field) if part is None else (*self._where, field, part)
            self.problems.append((where, _expected_expression(expected, expression, problem)))
            return None

    def _contradictions(self) -> Iterator[Problem]:
        model = self._model
        fields = model.model_dump(by_alias=True, exclude_none=True)
        if not any(field in fields for field in (*_SUPPLIED, "bindingFailureConditions")):
            yield self._where, f"expected at least one of {', '.join(_SUPPLIED)}, got none: the rule supplies nothing"
        if model.counter_set is not None and model.compatibility_groups is None:
            yield (*self._where, "counterSet"), "expected only beside compatibilityGroups"
        if model.neighbours is not None and model.compatible_only_with is None:
            yield (*self._where, "neighbours"), "expected only beside compatibleOnlyWith"
        conditions, failures = model.binding_conditions, model.binding_failure_conditions
        if (conditions is None) != (failures is None):
            missing = "bindingConditions" if conditions is None else "bindingFailureConditions"
            yield (*self._where, missing), "expected a list: the two lists of conditions go together"
        both = set(conditions or ()) & set(failures or ())
        if both:
            text = f"expected conditions that are not in bindingConditions, got {min(both)!r}"
            yield (*self._where, "bindingFailureConditions"), text
        for field in ("compatibilityGroups", "bindingConditions", "bindingFailureConditions"):
            names = fields.get(field, [])
            repeated = next((name for position, name in enumerate(names) if name in names[:position]), None)
            if repeated is not None:
                yield (*self._where, field), f"expected each name once, got {repeated!r} again"


def _repeated(field: str, key: str, names: Sequence[str], expected: str) -> Iterator[Problem]:
    earlier_names: set[str] = set()
    for index, name in enumerate(names):
        if name in earlier_names:
            yield (field, index, key), f"expected {expected}, got {name!r}"
        earlier_names.add(name)


def _sentence(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return unknown_field(FileModel, error["loc"])
    return sentence_of(error, {**_TYPES, "literal_error": _LITERALS.get(str(error["loc"][-1]), "")})


def _bad(source: str, loaded: Mapping[str, Any], problems: list[Problem], count: int) -> InvalidPolicyError:
    """Return the error that names these of `count` problems."""
    shown_problems = (FieldProblem(path_text(where), text, _rule_name(where, loaded)) for where, text in problems)
    more = f"; and {count - len(problems)} more" if count > len(problems) else ""
    return InvalidPolicyError(f"{source}: {'; '.join(map(str, shown_problems))}{more}", problems)


def _rule_name(where: FieldPath, loaded: Mapping[str, Any]) -> str:
    """Return for example `rule mig`; empty if the field is the name, or the rule has none."""
    match where:
        case ("rules", int(index), *_):
            rule = loaded["rules"][index]
            name = rule.get("name") if isinstance(rule, dict) else None
            if isinstance(name, str) and where[-1] != "name":
                return f"rule {name}"
    return ""
