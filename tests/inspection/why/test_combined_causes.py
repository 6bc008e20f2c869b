"""Pods that wait for causes that stand behind or beside each other: the answer names all of them."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.controlplane.objects import device, request
from tests.inspection.why.test_constructed_causes import GPU, assert_answer
from tests.support.inspection.made_cluster import MadeCluster

Build = Callable[[MadeCluster], None]
ATTRIBUTES: Final = f'device.attributes["{GPU}"]'
CASES: dict[Build, tuple[list[str], list[str]]] = {}
"""By the function that builds the cluster: texts of the answer about pod `train`, and texts that would not be so."""


def case(*expected: str, false: tuple[str, ...] = ()) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        CASES[build] = list(expected), list(false)
        return build

    return keep


def selected(made: MadeCluster, expression: str, **attributes: str | int | bool) -> None:
    """A GPU with these attributes, and a pod whose selector means another one."""
    made.gpus("n1", device("gpu-0", attributes=attributes, capacity={"memory": "40Gi"}))
    made.pod("train", request("r", "gpu", expression))


@case('model is "C", wanted "A"; model is "C", wanted "B"', 'next ask for model == "C" ok on n1')
def selector_with_two_values(made: MadeCluster) -> None:
    selected(made, f'{ATTRIBUTES}.model == "A" || {ATTRIBUTES}.model == "B"', model="C")


@case('model is "C", wanted anything but "C"', 'next ask for model == "C" ok on n1')
def selector_for_anything_but_the_value(made: MadeCluster) -> None:
    selected(made, f'{ATTRIBUTES}.model != "C"', model="C")


@case("healthy is false, wanted true", "next ask for healthy == false ok on n1")
def selector_for_a_flag(made: MadeCluster) -> None:
    selected(made, f"{ATTRIBUTES}.healthy", healthy=False)


@case("shared is true, wanted false", "next ask for shared == true ok on n1")
def selector_against_a_flag(made: MadeCluster) -> None:
    selected(made, f"!{ATTRIBUTES}.shared", shared=True)


@case("memory is 40Gi, wanted at least 80Gi", "next ask for memory >= 40Gi ok on n1")
def selector_with_zero_before_the_comparison(made: MadeCluster) -> None:
    selected(made, f'0 <= device.capacity["{GPU}"].memory.compareTo(quantity("80Gi"))')


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_answer_names_all_that_stands_in_the_way(build: Build) -> None:
    assert_answer(build, *CASES[build])
