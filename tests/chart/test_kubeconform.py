"""What the chart renders for many sets of values, and each overlay, is valid in every supported release of Kubernetes."""

import copy
import json
import shutil
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import kustomized_text
from tests.chart.programs import CHART, OVERLAYS, Helm, Object, overlay, run
from tests.chart.value_sets import VALUE_SETS
from tests.support.chart.commented_values import read_values
from tests.support.chart.kubernetes_types import LOCATION, all_releases, write_schemas
from tests.support.chart.values_schema import VALUES, schema

pytestmark = pytest.mark.chart

KINDS = ("--api-versions", "monitoring.coreos.com/v1", "--api-versions", "cert-manager.io/v1")
ALIASED = "set"


@pytest.fixture(scope="module")
def every_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart that holds ours once for each set of values: one run of helm renders all."""
    folder = tmp_path_factory.mktemp("every") / "every-set"
    shutil.copytree(CHART, folder / "charts" / "dra-extender")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    dependencies = [
        {"name": "dra-extender", "version": chart["version"], "repository": "", "alias": f"{ALIASED}{index}"}
        for index in range(len(VALUE_SETS))
    ]
    (folder / "Chart.yaml").write_text(
        json.dumps({"apiVersion": "v2", "name": "every-set", "version": "1.0.0", "dependencies": dependencies})
    )
    values = {f"{ALIASED}{index}": each for index, each in enumerate(VALUE_SETS.values())}
    (folder / "values.yaml").write_text(json.dumps(values))
    return folder


Answer = tuple[str, str, str, str]


def judged(kubeconform: Path, release: str, text: str, folder: Path) -> list[Answer]:
    """Kind, name, status and error of each object in a YAML stream, judged by the types of a release."""
    schemas, file = folder / "schemas", folder / "objects.yaml"
    write_schemas(release, schemas)
    file.write_text(text)
    where = ("-schema-location", f"{schemas}/{LOCATION}", "-kubernetes-version", release.removeprefix("v"))
    done = run(kubeconform, "-strict", "-verbose", "-output", "json", *where, file)
    answers = json.loads(done.output)["resources"]
    found = [(each["kind"], each["name"], each["status"], each["msg"]) for each in answers]
    return sorted(each for each in found if each[2] != "statusEmpty")


def invalid(answers: list[Answer]) -> list[Answer]:
    return [each for each in answers if each[2] != "statusValid"]


def rendered(helm: Helm, folder: Path, release: str) -> str:
    # A release and a namespace that YAML takes for numbers where a template forgets to quote them.
    done = helm.call("template", "1", str(folder), "--namespace", "456", "--kube-version", release, *KINDS)
    assert done.code == 0, done.words
    return done.output


@pytest.mark.parametrize("release", all_releases())
def test_every_set_of_values_is_valid_in(
    helm: Helm, kubeconform: Path, every_set: Path, release: str, tmp_path: Path
) -> None:
    answers = judged(kubeconform, release, rendered(helm, every_set, release), tmp_path)
    made = Counter(kind for kind, *_ in answers)
    assert made["Deployment"] == len(VALUE_SETS) >= 40
    assert {"PodMonitor", "ServiceMonitor", "ValidatingAdmissionPolicy"} <= made.keys()
    assert invalid(answers) == []


@pytest.mark.parametrize("release", all_releases())
def test_the_overlay_of_a_release_is_valid_in_it(
    binaries: Path, kubeconform: Path, release: str, tmp_path: Path
) -> None:
    answers = judged(kubeconform, release, kustomized_text(binaries, overlay(release)), tmp_path)
    assert len(answers) > 10
    assert invalid(answers) == []


def test_the_policy_for_cilium_is_valid(kubeconform: Path, tmp_path: Path) -> None:
    text = (OVERLAYS.parent / "components" / "cilium" / "cilium-network-policy.yaml").read_text()
    answers = judged(kubeconform, all_releases()[0], text, tmp_path)
    assert [(kind, status) for kind, _, status, _ in answers] == [("CiliumNetworkPolicy", "statusValid")]


def test_every_value_is_set_by_a_set() -> None:
    """So that no branch of a template stays without a look; a tag of kube-scheduler fits one release alone."""
    given = {name for each in VALUE_SETS.values() for name in names_in(each, "")}
    leaves = {each.name for value in read_values(VALUES) for each in value.leaves()}
    assert sorted(leaves - given) == ["scheduler.image.tag"]


def names_in(values: Object, above: str) -> set[str]:
    """All paths in the values, e.g. `image` and `image.tag`."""
    found = {f"{above}{name}" for name in values}
    return found.union(*(names_in(each, f"{above}{name}.") for name, each in values.items() if isinstance(each, dict)))


def test_a_value_of_another_type_is_refused_wherever_it_stands(kubeconform: Path, tmp_path: Path) -> None:
    """The schema of the values, with the program that judges objects: one run for all values."""
    made = schema()
    wrapped = {
        "$schema": made["$schema"],
        "definitions": made["definitions"],
        "properties": {"values": {name: each for name, each in made.items() if name not in ("$schema", "definitions")}},
    }
    (tmp_path / "values.json").write_text(json.dumps(wrapped))
    leaves = [each for value in read_values(VALUES) for each in value.leaves()]
    shipped = yaml.safe_load(VALUES.read_text())
    objects = [as_object("as-shipped", shipped)]
    objects += [as_object(each.name, with_value(shipped, each.path, wrong_for(each.default))) for each in leaves]
    (tmp_path / "objects.json").write_text("\n---\n".join(map(json.dumps, objects)))
    done = run(
        kubeconform,
        "-output",
        "json",
        "-verbose",
        "-schema-location",
        tmp_path / "values.json",
        tmp_path / "objects.json",
    )
    answers = {each["name"]: each["status"] for each in json.loads(done.output)["resources"]}
    assert answers.pop("as-shipped") == "statusValid"
    assert len(answers) == len(leaves)
    assert [name for name, status in answers.items() if status != "statusInvalid"] == []


def as_object(name: str, values: Object) -> Object:
    return {"apiVersion": "test/v1", "kind": "Values", "metadata": {"name": name}, "values": values}


def with_value(shipped: Object, path: tuple[str, ...], value: object) -> Object:
    """The shipped values with another one at a path."""
    values = copy.deepcopy(shipped)
    *above, last = path
    reduce(lambda found, step: found[step], above, values)[last] = value
    return values


def wrong_for(default: object) -> object:
    """A value of a type that the default has not."""
    return "a text" if isinstance(default, (list, dict)) else {"a": "mapping"}
