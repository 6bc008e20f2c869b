"""Selectors are evaluated lazily, once per device of a slice object, and remembered as long as that object lives."""

import gc
import tracemalloc
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, NamedClaim, is_read, reads_of
from dra_extender.allocator.demand.selectors import SelectorError, SelectorList, SelectorVerdicts
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.errors import CelCompileError, CelDeadlineError
from dra_extender.cel.program import ProgramCache
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    CLASSES,
    NODE,
    Held,
    allocate,
    ask,
    claim_of,
    demand_of,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
    typed,
)

IS_X = "device.attributes['gpu.example.com'].type == 'x'"
FAILS = "device.attributes['gpu.example.com'].missing == 'x'"


class CountingPrograms(ProgramCache):
    """Counts evaluations per expression."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluated: list[str] = []

    def compile(self, expression: str, **options: Any) -> Any:
        program, evaluated = super().compile(expression, **options), self.evaluated

        class Counting:
            def matches(self, device: DeviceActivation, *, deadline: Any = None) -> bool:
                evaluated.append(expression)
                return program.matches(device, deadline=deadline)

        return Counting()


def searched(
    programs: ProgramCache,
    verdicts: SelectorVerdicts,
    slices: list[ResourceSlice],
    claim: Any,
    classes: Mapping[str, Any],
) -> Any:
    demand = build_demand([NamedClaim("c0", claim)], classes, programs, Features(), verdicts)
    assert isinstance(demand, Demand)
    return allocate(demand, NODE, pools_of(slices), Held())


def test_each_list_is_evaluated_once_per_device_for_all_pods_and_nodes() -> None:
    programs, verdicts = CountingPrograms(), SelectorVerdicts()
    slices = [slice_of(typed("d1", "y"), typed("d2", "x"), typed("d3", "x"))]
    for count in (1, 1, 2, 3):
        searched(programs, verdicts, slices, claim_of(exactly(count, expression=IS_X)), CLASSES)
    assert programs.evaluated == [IS_X] * 3


def test_devices_after_the_first_fit_are_not_looked_at() -> None:
    programs = CountingPrograms()
    slices = [slice_of(*(typed(f"d{index}", "x") for index in range(50)))]
    searched(programs, SelectorVerdicts(), slices, claim_of(exactly(expression=IS_X)), CLASSES)
    assert len(programs.evaluated) == 1


def test_republished_slice_is_evaluated_anew() -> None:
    programs, verdicts = ProgramCache(), SelectorVerdicts()
    claim = claim_of(exactly(expression=IS_X))
    assert picks(searched(programs, verdicts, [slice_of(typed("d", "x"))], claim, CLASSES)) == [["d"]]
    assert searched(programs, verdicts, [slice_of(typed("d", "y"))], claim, CLASSES).verdict == "no"


def test_verdicts_go_with_the_slice() -> None:
    selectors = SelectorList([IS_X], ProgramCache())
    published = slice_of(typed("d", "x"))
    assert selectors.row(published).matches(published, 0, None)
    assert len(selectors._rows) == 1
    del published
    gc.collect()
    assert selectors._rows == {}


def test_lists_are_bounded_and_the_least_recently_used_goes_first() -> None:
    verdicts, programs = SelectorVerdicts(max_bytes=16_000), ProgramCache()
    first, second = verdicts.selector_list(["true"], programs), verdicts.selector_list(["false"], programs)
    assert verdicts.selector_list(["true"], programs) is first
    for number in range(30):
        verdicts.selector_list([f"{number} == 1"], programs)
        assert verdicts.selector_list(["true"], programs) is first
        assert verdicts.bytes_kept <= 16_000
    assert verdicts.selector_list(["false"], programs) is not second


def test_failing_selector_is_fatal_and_stays_so() -> None:
    selectors = SelectorList([FAILS], ProgramCache())
    published = slice_of(typed("d", "x"))
    for _ in range(2):
        with pytest.raises(SelectorError, match=r"gpu\.example\.com/pool/d") as problem:
            selectors.row(published).matches(published, 0, None)
        assert problem.value.code is Code.SELECTOR_FAILED
    found = reasons(ask([published], claim_of(exactly(expression=FAILS))))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.SELECTOR_FAILED)
    assert (found.rejections[0].claim, found.rejections[0].request, found.rejections[0].device) == ("c0", "r", "d")


def test_first_false_selector_hides_a_later_failure() -> None:
    selectors = [{"cel": {"expression": each}} for each in ("false", FAILS)]
    assert reasons(ask([slice_of("d")], claim_of(exactly(selectors=selectors)))).verdict == "no"
    assert reasons(ask([slice_of("d")], claim_of(exactly(selectors=selectors[::-1])))).verdict == "fatal"


def test_taken_devices_are_not_evaluated_for_an_exact_count_but_for_mode_all() -> None:
    slices = [slice_of("bad", typed("good", "x"))]
    claim = exactly(expression="device.attributes['gpu.example.com'].type == 'x'")
    assert picks(ask(slices, claim_of(claim), usage=[held("bad")])) == [["good"]]
    found = reasons(ask(slices, claim_of(every(expression=IS_X)), usage=[held("bad")]))
    assert found.verdict == "fatal"


def test_failure_on_a_device_of_another_node_is_fatal() -> None:
    """Selectors are evaluated before the node of a device is looked at."""
    elsewhere = {"name": "d", "nodeName": "node-2"}
    here = {**typed("e", "x"), "nodeName": "node-1"}
    found = reasons(ask([slice_of(elsewhere, here, perDeviceNodeSelection=True)], claim_of(exactly(expression=IS_X))))
    assert found.verdict == "fatal"


def test_deadline_inside_a_selector_is_not_remembered_as_a_verdict() -> None:
    class Slow:
        late = True

        def matches(self, _device: DeviceActivation, *, deadline: Any = None) -> bool:
            if deadline is not None and deadline():
                raise CelDeadlineError("time was up")
            return True

    class SlowPrograms(ProgramCache):
        def compile(self, expression: str, **_: Any) -> Any:
            return Slow()

    demand = build_demand([NamedClaim("c0", claim_of(exactly(expression="true")))], CLASSES, SlowPrograms(), Features())
    assert isinstance(demand, Demand)
    pools = pools_of([slice_of("d")])
    late = reasons(allocate(demand, NODE, pools, Held(), deadline=lambda: True))
    assert (late.verdict, late.rejections[0].code) == ("fatal", Code.SEARCH_LIMIT)
    assert picks(allocate(demand, NODE, pools, Held(), deadline=lambda: False)) == [["d"]]


def test_verdicts_are_bounded_in_bytes_and_one_namespace_leaves_the_others_theirs() -> None:
    limit = 300_000
    verdicts, programs = SelectorVerdicts(max_bytes=limit), ProgramCache()
    slices = [slice_of(typed("d", "x"), pool=f"pool{number}") for number in range(20)]
    victim = verdicts.selector_list([IS_X], programs, None, "victim")
    rows = [victim.row(each) for each in slices]
    for number in range(100):
        attacker = verdicts.selector_list([f"{IS_X} || {number} == 1"], programs, None, "attacker")
        for each in slices:
            attacker.row(each).matches(each, 0, None)
            assert verdicts.bytes_kept <= limit
    assert verdicts.selector_list([IS_X], programs, None, "victim") is victim
    assert [victim.row(each) for each in slices] == rows


def test_a_list_that_made_room_is_counted_again_when_it_is_used() -> None:
    verdicts, programs = SelectorVerdicts(max_bytes=20_000), ProgramCache()
    old, published = verdicts.selector_list([IS_X], programs), slice_of(typed("d", "x"))
    old.row(published)
    for number in range(30):
        verdicts.selector_list([f"{number} == 1"], programs)
    assert old.size == SelectorList([IS_X], programs).size
    before = verdicts.bytes_kept
    old.row(published)
    assert verdicts.selector_list([IS_X], programs) is old or verdicts.bytes_kept <= before


def test_a_slice_that_is_gone_gives_back_all_its_bytes() -> None:
    verdicts, programs = SelectorVerdicts(), ProgramCache()
    selectors = verdicts.selector_list([FAILS], programs)
    kept = set()
    for _ in range(5):
        published = slice_of(*(typed(f"d{number}", "x") for number in range(100)))
        with pytest.raises(SelectorError):
            selectors.row(published).matches(published, 0, None)
        kept.add(verdicts.bytes_kept)
        slice_reference = weakref.ref(published)
        del published
        gc.collect()
        assert slice_reference() is None
    assert len(kept) == 1
    assert selectors.size == SelectorList([FAILS], programs).size


def test_messages_of_failed_selectors_count_with_the_bytes_that_they_take() -> None:
    selectors = SelectorList([f"{{'a': 1}}['{chr(0x1F600) * 2_000}'] == 1"], ProgramCache())
    published = slice_of(*(typed(f"d{number}", "x") for number in range(100)))
    row, before = selectors.row(published), selectors.size
    tracemalloc.start()
    try:
        for position in range(100):
            with pytest.raises(SelectorError):
                row.matches(published, position, None)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * kept < selectors.size - before < 1.2 * kept


def test_an_expression_that_does_not_compile_keeps_no_frame_of_its_caller() -> None:
    (error,) = SelectorList(["device.nope"], ProgramCache()).programs
    assert isinstance(error, CelCompileError)
    assert (error.__traceback__, error.__context__) == (None, None)


DRIVER = "gpu.example.com"
TYPE = f'device.attributes["{DRIVER}"].type == "x"'


def test_selectors_constraints_and_derived_attributes_are_read() -> None:
    derived = [{"name": "x.example.com/side", "expression": f'device.attributes["{DRIVER}"].numa % 2'}]
    request = exactly(expression=TYPE, derivedAttributes=derived)
    constraints = [{"matchAttribute": "x.example.com/side"}, {"distinctAttribute": f"{DRIVER}/slot"}]
    found = reads_of(demand_of(claim_of(request, constraints=constraints)))
    assert found == frozenset({f"{DRIVER}/type", f"{DRIVER}/numa", f"{DRIVER}/slot", "x.example.com/side"})


def test_one_expression_that_may_read_any_attribute_is_enough() -> None:
    wishes = claim_of(exactly(expression=TYPE), exactly(name="s", expression='"x" in device.attributes'))
    assert reads_of(demand_of(wishes)) is None


def test_names_that_are_too_long_to_be_kept_count_as_any_attribute() -> None:
    expressions = [f'device.attributes["{DRIVER}"].{letter * 9_000} == 1' for letter in "ab"]
    first, second = (exactly(name=name, expression=text) for name, text in zip("ab", expressions, strict=True))
    assert reads_of(demand_of(claim_of(first))) is not None
    assert reads_of(demand_of(claim_of(first, second))) is None


def test_an_expression_that_does_not_compile_reads_nothing() -> None:
    assert reads_of(demand_of(claim_of(exactly(expression="device.nothing.like.this(")))) == frozenset()


@pytest.mark.parametrize(
    ("attribute", "read"),
    [
        ("type", True),
        (f"{DRIVER}/type", True),
        ("x.example.com/type", False),
        ("model", False),
        ("own", True),
        (f"{DRIVER}/own", True),
        ("x.example.com/own", False),
    ],
)
def test_bare_names_belong_to_the_driver(attribute: str, read: bool) -> None:
    assert is_read(frozenset({f"{DRIVER}/type", "*/own"}), DRIVER, attribute) is read
