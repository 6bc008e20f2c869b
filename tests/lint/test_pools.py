"""Slices of one pool are looked at together: an API server stores each, and schedulers offer no devices of a wrong pool."""

import pytest
from dra_extender.lint.lint_files import lint_files
from dra_extender.lint.read import read_files

HEAD = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {{name: {pool}, generation: {generation}, resourceSliceCount: {count}}}
"""


def counters(
    name: str = "counters", value: str = "100", *, count: int = 2, generation: int = 1, pool: str = "p"
) -> str:
    head = HEAD.format(name=name, pool=pool, generation=generation, count=count)
    return f"{head}  sharedCounters: [{{name: gpu-0, counters: {{sm: {{value: '{value}'}}}}}}]\n---\n"


def devices(
    name: str = "devices",
    draws: str = "gpu-0, counters: {sm: {value: '40'}}",
    *,
    count: int = 2,
    generation: int = 1,
    pool: str = "p",
    device: str = "mig-0",
) -> str:
    head = HEAD.format(name=name, pool=pool, generation=generation, count=count)
    return f"{head}  devices: [{{name: {device}, consumesCounters: [{{counterSet: {draws}}}]}}]\n---\n"


def said(*files: str) -> list[str]:
    report = lint_files(read_files([(f"{index}.yaml", text) for index, text in enumerate(files)]))
    assert not report.unreadable
    return [
        f"{each.file}:{each.line} {each.object}: {each.severity}: {each.message} [{each.code}]"
        for each in report.findings
    ]


def test_complete_pool_is_sound_in_one_file_and_in_two() -> None:
    assert said(counters() + devices()) == []
    assert said(counters(), devices()) == []


def test_pools_of_one_name_in_files_of_their_own_are_of_different_clusters() -> None:
    assert (
        said(counters() + devices(), counters(value="10") + devices(draws="gpu-0, counters: {sm: {value: '5'}}")) == []
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            devices(),
            (
                "1 ResourceSlice devices: warning: pool gpu.example.com/p has 1 of 2 slices here; it offers no devices until it is "
                "complete [pool]"
            ),
        ),
        (
            counters() + devices(count=3),
            "1 ResourceSlice counters: error: pool gpu.example.com/p: its slices declare different numbers of slices: 2, 3 [pool]",
        ),
        (
            counters() + devices(draws="gpu-1, counters: {sm: {value: '1'}}"),
            (
                "1 ResourceSlice counters: error: pool gpu.example.com/p: device mig-0 draws on unknown counter set gpu-1; "
                "no device of the pool is offered [pool]"
            ),
        ),
        (
            counters() + devices(draws="gpu-0, counters: {memory: {value: '1'}}"),
            (
                "1 ResourceSlice counters: error: pool gpu.example.com/p: device mig-0 draws on unknown counter memory of "
                "counter set gpu-0; no device of the pool is offered [pool]"
            ),
        ),
        (
            counters(count=3) + devices("one", count=3) + devices("two", count=3),
            (
                "1 ResourceSlice counters: error: pool gpu.example.com/p: device mig-0 is published twice; "
                "no device of the pool is offered [pool]"
            ),
        ),
        (
            counters(count=2) + counters("again", count=2),
            (
                "1 ResourceSlice counters: error: pool gpu.example.com/p: counter set gpu-0 is declared twice; "
                "no device of the pool is offered [pool]"
            ),
        ),
        (
            counters() + devices(draws="gpu-0, counters: {sm: {value: '101'}}"),
            (
                "10 ResourceSlice devices: warning: device mig-0 needs 101 of counter sm of gpu-0, which has 100: "
                "it is never allocated [never-fits]"
            ),
        ),
    ],
)
def test_pool_that_offers_nothing_or_a_device_that_nobody_gets_is_named(text: str, found: str) -> None:
    assert said(text) == [f"0.yaml:{found}"]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = devices("old", "gpu-9, counters: {sm: {value: '1'}}", generation=1)
    assert said(counters(generation=2) + devices(generation=2) + old) == []


def test_later_document_about_a_slice_replaces_the_earlier_one() -> None:
    assert said(counters() + devices(draws="gpu-9, counters: {sm: {value: '1'}}") + devices()) == []


def test_devices_of_v1beta1_are_looked_at_with_what_they_draw() -> None:
    too_much = devices(draws="gpu-0, counters: {sm: {value: '400'}}")
    older = too_much.replace("/v1\n", "/v1beta1\n").replace("mig-0, ", "mig-0, basic: {").replace("]}]", "]}}]")
    assert said(counters() + older) == said(counters() + too_much)
    assert "it is never allocated" in said(counters() + older)[0]
