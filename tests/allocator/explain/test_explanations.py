"""A refusal names the request that got furthest, and the nearest misses there first."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.state.features import UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code, Rejection

from tests.support.allocator.building import (
    NODE,
    ask,
    claim_of,
    consuming,
    counters_of,
    either,
    every,
    exactly,
    held,
    reasons,
    slice_of,
    typed,
)

TYPE = 'device.attributes["gpu.example.com"].?type.orValue("") == "{}"'
TAINT = [{"key": "broken", "effect": "NoExecute"}]


def said(*args: Any, **more: Any) -> list[tuple[Code, str]]:
    return [(each.code, each.detail) for each in reasons(ask(*args, **more)).rejections]


def test_nothing_matches() -> None:
    text = "none of 2 devices match class any and the selectors of the request"
    assert said([slice_of("a", "b")], claim_of(exactly(expression="false"))) == [(Code.NO_MATCH, text)]


def test_no_devices() -> None:
    assert said([], claim_of(exactly())) == [(Code.NO_DEVICES, "")]
    assert said([], claim_of(every())) == [(Code.NO_DEVICES, "")]


def test_fewer_match_than_wanted() -> None:
    text = "3 devices wanted, 2 of 2 match class any and the selectors of the request"
    assert said([slice_of("a", "b")], claim_of(exactly(3))) == [(Code.COMBINATION, text)]


def test_other_requests_of_the_pod_took_the_devices() -> None:
    slices = [slice_of("a", "b")]
    assert said(slices, claim_of(exactly(2)), claim_of(exactly())) == [
        (Code.COMBINATION, "a, b taken for claim c0, request r")
    ]


def test_nearest_misses_come_first() -> None:
    slices = [
        counters_of(set=4),
        slice_of(
            consuming("held", "a", amount=2),
            consuming("grouped", "b"),
            consuming("big", "a", amount=3),
            {"name": "bad", "taints": TAINT},
            typed("other", "x"),
            count=2,
        ),
    ]
    claim = claim_of(exactly(expression=f"!({TYPE.format('x')})"))
    found = reasons(ask(slices, claim, usage=[held("held")])).rejections
    assert [(each.code, each.device) for each in found] == [
        (Code.GROUPS, "grouped"),
        (Code.COUNTERS, "big"),
        (Code.TAINTED, "bad"),
        (Code.IN_USE, "held"),
    ]
    assert {(each.claim, each.request) for each in found} == {("c0", "r")}


def test_request_that_got_furthest_is_named() -> None:
    slices = [slice_of(typed("a", "x"), "b")]
    claim = claim_of(exactly(name="first"), exactly(name="second", expression="false"))
    found = reasons(ask(slices, claim)).rejections[0]
    assert (found.request, found.code) == ("second", Code.NO_MATCH)


def test_alternative_is_named_as_results_name_it() -> None:
    found = reasons(ask([slice_of("a")], claim_of(either(exactly(2), exactly(3))))).rejections[0]
    assert found.request == "r/a0"


def test_incomplete_pool_comes_before_no_match_and_after_anything_better() -> None:
    slices = [slice_of(typed("a", "x"), count=2), slice_of("b", pool="good")]
    assert [code for code, _ in said(slices, claim_of(exactly(expression=TYPE.format("x"))))] == [
        Code.POOL_INCOMPLETE,
        Code.NO_MATCH,
    ]
    codes = [code for code, _ in said(slices, claim_of(exactly()), usage=[held("b", pool="good")])]
    assert codes == [Code.IN_USE, Code.POOL_INCOMPLETE]


@pytest.mark.parametrize("count", [pytest.param(2, id="incomplete"), pytest.param(1, id="invalid")])
@pytest.mark.parametrize(
    ("expression", "devices", "driver", "named"),
    [
        pytest.param('device.driver == "gpu.example.com"', ["a", "a"], "gpu.example.com", True, id="own-driver"),
        pytest.param('device.driver == "gpu.example.com"', ["a", "a"], "nic.example.com", False, id="other-driver"),
        pytest.param(TYPE.format("x"), [typed("a", "x")] * 2, "gpu.example.com", True, id="own-kind"),
        pytest.param(TYPE.format("x"), [typed("a", "y")] * 2, "gpu.example.com", None, id="other-kind"),
    ],
)
def test_pool_without_devices_is_named_if_the_request_could_take_its_devices(
    count: int, expression: str, devices: list[Any], driver: str, named: bool | None
) -> None:
    """Devices of another kind may follow where the pool is incomplete."""
    named = count > 1 if named is None else named
    published = slice_of(*devices, driver=driver, count=count)
    found = reasons(
        ask([published, slice_of("c", pool="good", driver="third")], claim_of(exactly(expression=expression)))
    )
    assert [each.code for each in found.rejections][named:] == [Code.NO_MATCH]
    assert found.verdict == ("no" if count > 1 else "node")


def test_incomplete_pool_without_devices_is_named_if_the_selectors_allow_its_driver() -> None:
    claim = claim_of(exactly(expression='device.driver == "gpu.example.com"'))
    for driver, code in (("gpu.example.com", Code.POOL_INCOMPLETE), ("nic.example.com", Code.NO_DEVICES)):
        assert said([slice_of(count=2, driver=driver)], claim)[0][0] is code


def test_incomplete_pool_is_named_for_the_request_that_could_take_its_devices() -> None:
    slices = [slice_of(count=2, driver="nic.example.com"), slice_of("b", pool="good")]
    gpu, nic = (
        exactly(name="g", expression='device.driver == "gpu.example.com"'),
        exactly(name="n", expression='device.driver == "nic.example.com"'),
    )
    found = reasons(ask(slices, claim_of(gpu, nic))).rejections[0]
    assert (found.code, found.request) == (Code.POOL_INCOMPLETE, "n")


def test_mode_all_names_a_broken_pool_of_another_driver_only_where_it_selects_devices() -> None:
    """Mode All is refused beside any broken pool, whatever its driver."""
    claim = claim_of(every(expression='device.driver == "gpu.example.com"'))
    broken = slice_of("n", "n", driver="nic.example.com", pool="broken")
    codes = {
        "selects": said([broken, slice_of("a")], claim)[0][0],
        "others": said([broken, slice_of("a", driver="third", pool="third")], claim)[0][0],
        "none": said([broken], claim)[0][0],
    }
    assert codes == {"selects": Code.POOL_INVALID, "others": Code.NO_MATCH, "none": Code.NO_MATCH}


def test_overdrawn_pool_is_reported() -> None:
    slices = [counters_of(set=1), slice_of(consuming("a", amount=0), consuming("b", amount=2), count=2)]
    text = "a draws on a pool whose counter c in counter set set is overdrawn (-1 remain)"
    assert said(slices, claim_of(exactly()), usage=[held("b")])[0] == (Code.COUNTERS, text)


def test_long_lists_are_cut() -> None:
    names = [f"d{index}" for index in range(9)]
    found = said([slice_of(*names)], claim_of(exactly()), usage=[held(name) for name in names])
    assert found == [(Code.IN_USE, "d0, d1, d2 and 6 more")]
    members = [consuming(name, "a") for name in names]
    slices = [counters_of(set=99), slice_of(*members, consuming("x", "b"), count=2)]
    text = said(slices, claim_of(exactly()), usage=[held(name) for name in names])[0][1]
    assert text == (
        "x declares [b] on counter set set; d0 (in use) has [a]; d1 (in use) has [a]; d2 (in use) has [a]; "
        "6 more; together they leave [a]"
    )


@pytest.mark.parametrize("code", [Code.GROUPS, Code.COUNTERS])
def test_summary_is_the_same_whatever_the_amounts_and_devices(code: Code) -> None:
    """kube-scheduler aggregates equal texts over nodes."""
    texts = set()
    for amount in (2, 3):
        device = consuming(f"d{amount}", *(["b"] if code is Code.GROUPS else []), amount=amount)
        holder = consuming("held", *(["a"] if code is Code.GROUPS else []), amount=amount)
        slices = [counters_of(set=3), slice_of(holder, device, count=2)]
        texts.add(reasons(ask(slices, claim_of(exactly()), usage=[held("held")], node=NODE)).rejections[0].summary)
    assert texts == {Rejection(code=code, claim="c0", request="r").summary}


def test_binding_conditions_that_are_off_in_upstreams_way_are_reported() -> None:
    off = dataclasses.replace(Features(), device_binding_and_status=False)
    slices = [slice_of({"name": "a", "bindingConditions": ["x"]})]
    found = said(slices, claim_of(exactly()), features=off, release=UPSTREAM)
    assert found == [(Code.REQUEST_UNSUPPORTED, "a needs DeviceBindingAndStatus, which is off")]


def test_selector_that_fails_on_a_device_in_use_is_reported_as_failed() -> None:
    """The search does not evaluate it, as the device is taken; whether the request selects the device stays unknown."""
    failing = claim_of(exactly(expression='device.attributes["gpu.example.com"].missing == 1'))
    ((code, detail),) = said([slice_of("a")], failing, usage=[held("a")])
    assert code is Code.SELECTOR_FAILED
    assert detail.endswith("; a is in use")
    assert "missing" in detail
    ((code, detail),) = said([slice_of("a")], claim_of(exactly(expression="1 +")), usage=[held("a")])
    assert code is Code.SELECTOR_INVALID
    clean = claim_of(exactly(expression='device.attributes["gpu.example.com"].?type.orValue("x") == "x"'))
    assert said([slice_of("a", typed("b", "y"))], clean, usage=[held("a")]) == [(Code.IN_USE, "a")]
