"""Whatever a manifest says, it is answered with a sentence: no value at any place is a failure of the demo or the lint."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_extender.lint.lint_files import lint_files
from dra_extender.lint.read import read_files
from dra_extender.simulator.demo.document import ManifestError
from dra_extender.simulator.demo.manifests import load_texts
from dra_extender.simulator.demo.runner import steps_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
POD = {"spec": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}], "priority": 1}}
WORKLOADS: list[dict[str, Any]] = [
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "template": POD},
    },
    {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"parallelism": 2, "completions": 1, "template": POD},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"workloadRef": {"workloadName": "w", "templateName": "t"}, "podGroupTemplateRef": {"workload": {}}},
    },
]
OBJECTS = [
    *WORKLOADS,
    *(
        thing
        for name in ("05", "08", "13", "15", "16")
        for path in EXAMPLES.glob(f"{name}-*.yaml")
        for thing in yaml.safe_load_all(path.read_text())
    ),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=5),
    st.sampled_from(
        ["\x1b[31m", "a" * 300, "1e999999999", "9" * 40, "delete", "²", "1001", [], {}, [None], {"": None}]
    ),
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from paths(item, (*path, step))


def replaced(thing: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    found = copy.deepcopy(thing)
    at = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return found


@st.composite
def spoilt_objects(draw: st.DrawFn) -> Any:
    thing = draw(st.sampled_from(OBJECTS))
    for _ in range(draw(st.integers(1, 2))):
        thing = replaced(thing, draw(st.sampled_from(list(paths(thing)))), draw(VALUES))
    return thing


RESOURCES: tuple[Any, ...] = (True, {"claims": True}, {"claims": ["a"]}, {"claims": [{"name": []}]})
CONTAINERS = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": each}]},
    }
    for each in RESOURCES
]


@settings(examples(100), suppress_health_check=list(HealthCheck))
@example(CONTAINERS, False)
@example([{**WORKLOADS[0], "apiVersion": []}], False)
@given(st.lists(spoilt_objects(), min_size=1, max_size=3), st.booleans())
def test_spoilt_manifest_is_answered_with_sentences(things: list[Any], deletes: bool) -> None:
    for thing in things:
        if deletes and isinstance(thing, dict) and isinstance(thing.get("metadata"), dict):
            thing["metadata"] = {**thing["metadata"], "annotations": {"dra-extender.io/demo": "delete"}}
    text = "\n---\n".join(map(json.dumps, things))
    try:
        steps_of(load_texts([("file.yaml", text)]).documents)
    except ManifestError as problem:
        sentences = str(problem).splitlines()
        assert sentences
        assert all(each.startswith("file.yaml:") and each.isprintable() for each in sentences)
    report = lint_files(read_files([("file.yaml", text)]))
    assert all(each.line > 0 for each in report.findings)


@pytest.mark.parametrize("number", [2_000])
def test_many_unknown_fields_and_long_names_take_little_work(number: int) -> None:
    """Work grows with the size of the file alone."""
    spec = {
        "containers": [{"name": "a", "image": "b"}],
        **{f"containerz{index}": 1 for index in range(number)},
        "c" * 900: 1,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    with pytest.raises(ManifestError) as caught:
        load_texts([("file.yaml", json.dumps(pod))])
    assert len(caught.value.problems) >= number
