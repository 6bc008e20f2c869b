"""Validation of claims before any search, and the signature of what they want."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.state.features import FIELD_OF_NAME, Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.program import ProgramCache
from dra_extender.model.device_class import device_class_from

from tests.support.allocator.building import (
    CLASSES,
    ask,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    reasons,
    refusal,
    slice_of,
)


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (exactly(deviceClassName=""), Code.CLASS_MISSING, "names no device class"),
        (exactly(deviceClassName="unknown"), Code.CLASS_MISSING, "device class unknown"),
        (exactly(selectors=[{}]), Code.SELECTOR_INVALID, "has a selector without CEL expression"),
        (exactly(allocationMode=""), Code.REQUEST_UNSUPPORTED, "has the unknown allocation mode ''"),
        (exactly(allocationMode="Most"), Code.REQUEST_UNSUPPORTED, "has the unknown allocation mode 'Most'"),
        ({"name": "r"}, Code.REQUEST_UNSUPPORTED, "has neither exactly nor firstAvailable"),
        (
            exactly(capacity={"requests": {"memory": "much"}}),
            Code.AMOUNT_INVALID,
            (
                "asks for capacity: cannot read quantity 'much': expected an optional sign, digits, and a suffix such as "
                "k, M, Gi, m or e3"
            ),
        ),
    ],
)
def test_request_that_no_node_can_serve_is_refused_in_words(request_: dict[str, Any], code: Code, text: str) -> None:
    found = refusal(claim_of(request_))
    assert (found.code, found.claim, found.request, found.detail) == (code, "c0", "r", text)


@pytest.mark.parametrize(
    ("feature", "request_", "text"),
    [
        ("admin_access", exactly(adminAccess=False), "mentions admin access and needs AdminAccess, which is off"),
        (
            "consumable_capacity",
            exactly(capacity={"requests": {}}),
            "asks for capacity and needs ConsumableCapacity, which is off",
        ),
        (
            "derived_attributes",
            exactly(derivedAttributes=[{"name": "x/y", "expression": "1"}]),
            "defines derived attributes and needs DerivedAttributes, which is off",
        ),
        ("prioritized_list", either(exactly()), "has alternatives and needs PrioritizedList, which is off"),
    ],
)
def test_request_that_needs_a_feature_that_is_off_is_refused(feature: str, request_: dict[str, Any], text: str) -> None:
    features = dataclasses.replace(Features(), **{feature: False})
    found = refusal(claim_of(request_), features=features)
    assert (found.code, found.detail) == (Code.REQUEST_UNSUPPORTED, text)
    assert isinstance(demand_of(claim_of(request_)), Demand)


def test_alternative_is_named_in_the_refusal() -> None:
    assert refusal(claim_of(either(exactly(), exactly(deviceClassName="unknown")))).request == "r/a1"


def test_first_claim_that_is_wrong_is_named() -> None:
    found = refusal(claim_of(exactly()), claim_of(exactly(33)), claim_of(exactly(deviceClassName="unknown")))
    assert (found.code, found.claim) == (Code.TOO_MANY_DEVICES, "c1")


def test_constraint_of_an_unknown_kind_is_refused() -> None:
    assert refusal(claim_of(exactly(), constraints=[{}])).code is Code.REQUEST_UNSUPPORTED


def test_class_selector_without_cel_is_refused() -> None:
    classes = {"any": device_class_from({"metadata": {"name": "any"}, "spec": {"selectors": [{}]}})}
    found = build_demand([NamedClaim("c0", claim_of(exactly()))], classes, ProgramCache(), Features())
    assert not isinstance(found, Demand)
    assert found.code is Code.SELECTOR_INVALID


@pytest.mark.parametrize(("count", "accepted"), [(32, True), (33, False)])
def test_a_claim_may_have_32_devices(count: int, accepted: bool) -> None:
    found = build_demand([NamedClaim("c0", claim_of(exactly(count)))], CLASSES, ProgramCache(), Features())
    assert isinstance(found, Demand) is accepted


def test_limit_is_per_claim_and_counts_the_smallest_alternative() -> None:
    demand_of(claim_of(exactly(32)), claim_of(either(exactly(40), exactly(2)), exactly(30, name="r2")))


def test_mode_all_counts_what_the_node_has() -> None:
    found = reasons(ask([slice_of(*(f"d{index}" for index in range(33)))], claim_of(every())))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.TOO_MANY_DEVICES)


def test_selector_that_does_not_compile_matters_only_where_a_device_is_looked_at() -> None:
    claim = claim_of(exactly(expression="device.nonsense("))
    assert reasons(ask([], claim)).verdict == "no"
    found = reasons(ask([slice_of("d")], claim))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.SELECTOR_INVALID)


SIGNED = claim_of(exactly(2, expression="true"), config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}])


def signature(*claims: Any, classes: Any = CLASSES, features: Features | None = None, label: str = "gpu") -> bytes:
    found = build_demand(
        [NamedClaim(label, claim) for claim in claims], classes, ProgramCache(), features or Features()
    )
    assert isinstance(found, Demand)
    return found.signature


def test_replicas_of_a_workload_share_a_signature() -> None:
    other = claim_of(
        exactly(2, expression="true"), name="another", config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}]
    )
    assert signature(SIGNED) == signature(other)


@pytest.mark.parametrize(
    "changed",
    [
        claim_of(exactly(3, expression="true"), config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}]),
        claim_of(exactly(2, expression="false"), config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}]),
        claim_of(exactly(2, expression="true"), config=[{"opaque": {"driver": "d", "parameters": {"a": 2}}}]),
        claim_of(exactly(2, expression="true")),
        claim_of(
            exactly(2, expression="true", tolerations=[{"operator": "Exists"}]),
            config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}],
        ),
        claim_of(
            exactly(2, expression="true"),
            constraints=[{"matchAttribute": "a/b"}],
            config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}],
        ),
    ],
)
def test_anything_that_decides_changes_the_signature(changed: Any) -> None:
    assert signature(changed) != signature(SIGNED)


def test_classes_features_and_labels_are_part_of_the_signature() -> None:
    edited = {**CLASSES, "any": device_class_from({"metadata": {"name": "any"}, "spec": {"config": [{}]}})}
    unrelated = {**CLASSES, "gpu": device_class_from({"metadata": {"name": "gpu"}, "spec": {"config": [{}]}})}
    base = signature(SIGNED)
    assert signature(SIGNED, classes=edited) != base
    assert signature(SIGNED, classes=unrelated) == base
    assert signature(SIGNED, features=dataclasses.replace(Features(), device_taints=False)) != base
    assert signature(SIGNED, label="nic") != base
    assert signature(SIGNED, SIGNED) != base


def test_features_by_name_default_to_off_and_refuse_unknown_names() -> None:
    found = Features.from_names({"DeviceTaints": True})
    assert [field for field in FIELD_OF_NAME.values() if getattr(found, field)] == ["device_taints"]
    with pytest.raises(ValueError, match="Taints"):
        Features.from_names({"Taints": True})


def test_every_feature_is_on_by_default() -> None:
    assert all(getattr(Features(), field) for field in FIELD_OF_NAME.values())
