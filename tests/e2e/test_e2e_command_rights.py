"""Every command that asks a cluster, in the name of users with other rights: what could not be read is never answered."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
import typer
from dra_extender.cli.app import app

from tests.controlplane import objects
from tests.controlplane.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.controlplane.resources import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from tests.support.e2e.command import kubectl_dra, run_here
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.service_rights import may

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NOBODY: Final = "nobody"
EDITOR: Final = "editor"
VIEWER: Final = "viewer"
POD: Final = "train"
REASON: Final = "no device matches the selectors"
FILE: Final = "cluster.tar.gz"
CLAIMS: Final = Path(__file__).parents[2] / "deploy" / "examples" / "01-mig-against-vgpu.yaml"
QUESTIONS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "why": ((POD,), (POD, "--node", "NODE"), ()),
    "devices": ((), ("NODE",)),
    "usage": ((),),
    "what-if": ((), ("--fill", POD)),
    "defrag": (("--pod", POD),),
    "audit": (("--again-after", "0"),),
    "snapshot": (("-o", FILE), ("-o", FILE, "--redact")),
    "lint": (("--live", str(CLAIMS)),),
    "ui": (),
}
"""What is asked, by command; NODE stands for the name of the node."""
FOLLOWING: Final = (("why", POD, "--watch"), ("ui",))
"""Commands that go on until they are stopped, if they can answer."""
PARTLY: Final = {("why", POD), ("why",)}
"""What is answered to somebody who may read one namespace."""
AGES: Final = frozenset({"origin", "age", "events"})
Answer = tuple[int, str, str]


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(applied=("viewer-role",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(world: InstalledExtender) -> AsyncIterator[NamespaceFixture]:
    """A pod for which the one device is too small, and users with the roles that people have."""
    scene = NamespaceFixture(world, "asking")
    await scene.open()
    await scene.node_with_devices("a", objects.device("gpu-0", attributes={"size": "small"}))
    await scene.claim("large", f'{scene.attribute("size")} == "large"')
    await scene.pod(POD, claim="large")
    await scene.wait_until_unschedulable(POD, REASON, again=True)
    await scene.wait_for_event(POD, REASON, '"small"', '"large"')
    bindings = (
        (CLUSTER_ROLE_BINDINGS, objects.role_binding(f"viewers-{scene.name}", "dra-viewer", objects.user(VIEWER))),
        (ROLE_BINDINGS, objects.role_binding("editors", "edit", objects.user(EDITOR), namespace=scene.name)),
    )
    for resource, body in bindings:
        await scene.api.create(resource, body)
    await may_list(scene, VIEWER, "nodes", "")
    await may_list(scene, EDITOR, "pods", scene.name)
    yield scene
    for resource, body in bindings:
        await scene.api.delete(resource, body["metadata"]["name"], body["metadata"].get("namespace"))
    await scene.clear()


async def may_list(scene: NamespaceFixture, user: str, kind: str, namespace: str) -> None:
    """Wait until the API server has loaded the user's role."""
    attributes = {"verb": "list", "resource": kind, "namespace": namespace}

    async def loaded() -> bool:
        return await may(scene.api, {"user": user, "resourceAttributes": attributes})

    await scene.api.wait_for(loaded, SECONDS, f"{user} may list {kind}")


def asking() -> Iterator[str]:
    """Yield the commands that ask a cluster in somebody's name, as the program has them."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if any("--as" in parameter.opts for parameter in command.params):
            yield name


def kubeconfig(scene: NamespaceFixture, folder: Path, user: str, namespace: str = "") -> str:
    """Write the kubeconfig of a user who works in a namespace, by default that of the scene; returns its path."""
    path = write_kubeconfig(folder / f"{user}.kubeconfig", read_kubeconfig(scene.world.cluster.admin_kubeconfig))
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace or scene.name
    if user:
        config["users"][0]["user"]["as"] = user
    path.write_text(json.dumps(config))
    return str(path)


def questions(scene: NamespaceFixture, folder: Path, user: str) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the words of each command line, by what it asks."""
    places = {"NODE": f"{scene.name}-a"}
    asked = [(command, *words) for command, variants in QUESTIONS.items() for words in variants]
    return {
        words: tuple(
            str(folder / f"{user}-{index}-{FILE}") if word == FILE else places.get(word, word) for word in words
        )
        for index, words in enumerate(asked)
    }


async def answers(asked: Mapping[tuple[str, ...], tuple[str, ...]], *options: str) -> Mapping[tuple[str, ...], Answer]:
    """Return exit status, output and errors of each command line."""
    return {asked_for: await run_here(*words, *options) for asked_for, words in asked.items()}


def files(folder: Path) -> list[Path]:
    return [*folder.glob(f"*{FILE}")]


def is_refusal(answer: Answer) -> bool:
    """Return whether the answer is one error that names verb, resource and the role that grants it."""
    status, out, err = answer
    return (status, out) == (2, "") and all(
        (
            err.count("\n") == 1,
            err.startswith("error: no answer with kubeconfig "),
            ": the account may not list " in err,
            "(ClusterRole dra-viewer grants it): list " in err,
            ": 403 Forbidden: " in err,
        )
    )


async def test_user_without_rights_is_answered_nothing_and_an_editor_nothing_of_another_namespace(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    """All commands that ask a cluster are asked."""
    assert {*asking()} == {*QUESTIONS}
    assert {command for command, variants in QUESTIONS.items() if not variants} <= {words[0] for words in FOLLOWING}
    asked = {**questions(scene, tmp_path, NOBODY), **dict(zip(FOLLOWING, FOLLOWING, strict=True))}
    found = await answers(asked, "--kubeconfig", kubeconfig(scene, tmp_path, NOBODY))
    assert {words: answer for words, answer in found.items() if not is_refusal(answer)} == {}
    asked = {
        words: line
        for words, line in questions(scene, tmp_path, EDITOR).items()
        if words[0] in ("why", "audit", "snapshot")
    }
    found = await answers(asked, "--kubeconfig", kubeconfig(scene, tmp_path, EDITOR, "default"))
    assert {words: answer for words, answer in found.items() if not is_refusal(answer)} == {}
    assert files(tmp_path) == []


async def test_editor_of_one_namespace_hears_what_is_unknown_and_nothing_that_depends_on_it(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    asked = questions(scene, tmp_path, EDITOR)
    options = ("--kubeconfig", kubeconfig(scene, tmp_path, EDITOR))
    found = await answers(asked, *options)
    refused = {words for words, answer in found.items() if is_refusal(answer)}
    assert {*found} - refused == {*PARTLY, *(words for words in found if words[0] in ("audit", "snapshot"))}
    unknown = "the account may not list nodes, deviceclasses, devicetaintrules, resourceslices, nor resourceclaims"
    for words in PARTLY:
        status, out, err = found[words]
        assert (status, err) == (0, "")
        said = " ".join(out.split())
        assert said.startswith(f"not known: {unknown}, podgroups and pods outside namespace {scene.name} (ClusterRole")
        assert REASON in said, "the pod's own Event has the reason"
        assert [text for text in ("fits", "0 nodes", "no nodes", "device is free", " next ") if text in said] == []
    (audit,) = [words for words in found if words[0] == "audit"]
    status, out, err = found[audit]
    assert (status, err) == (2, "")
    assert out.startswith("nothing found, but not everything could be judged (no kind could be read whole)")
    for words in found:
        if words[0] == "snapshot":
            status, out, err = found[words]
            assert (status, err) == (0, "")
            assert out.startswith(f"not in the file: {unknown}")
    file = str(tmp_path / FILE)
    assert (await kubectl_dra("snapshot", "-o", file, *options))[0] == 0
    live = await report("why", POD, "-n", scene.name, *options)
    assert live["cause"] == "not known"
    assert not {"nodes", "fitting", "branches", "next", "usable"} & {name for name, value in live.items() if value}
    assert any(REASON in event["message"] for event in live["events"])
    assert {each["state"] for each in live["origin"]["gates"]} & {"unknown"}
    kept = await report("why", POD, "-n", scene.name, "--snapshot", file)
    assert {name: kept[name] for name in kept if name not in AGES} == {
        name: live[name] for name in live if name not in AGES
    }
    assert {event["message"] for event in kept["events"]} == {event["message"] for event in live["events"]}


async def test_viewer_is_answered_as_the_administrator_is_and_may_write_nothing(
    scene: NamespaceFixture, tmp_path: Path
) -> None:
    asked = questions(scene, tmp_path, VIEWER)
    options = ("--kubeconfig", kubeconfig(scene, tmp_path, VIEWER))
    found = await answers(asked, *options)
    for status, out, err in found.values():
        assert (status in (0, 1), err) == (True, "")
        assert "may not" not in out
        assert "not known" not in out
    assert len(files(tmp_path)) == sum(words[0] == "snapshot" for words in found)
    seen = await report("why", POD, *options)
    admin = await report("why", POD, "-n", scene.name, "--kubeconfig", str(scene.world.cluster.admin_kubeconfig))
    assert {name: seen[name] for name in seen if name not in AGES} == {
        name: admin[name] for name in admin if name not in AGES
    }
    assert seen["branches"]
    assert {each["state"] for each in seen["origin"]["gates"]} <= {"on", "off"}
    assert seen["origin"]["release"].startswith("v1.37")
    for verb in ("create", "update", "patch", "delete"):
        for group, kind in (("", "pods"), ("resource.k8s.io", "resourceclaims"), ("", "nodes")):
            attributes = {"verb": verb, "group": group, "resource": kind}
            assert not await may(scene.api, {"user": VIEWER, "resourceAttributes": attributes})


async def report(*arguments: str) -> dict[str, Any]:
    """Return an answer as JSON."""
    status, out, err = await run_here(*arguments, "-o", "json")
    assert (status, err) == (0, "")
    decoded: dict[str, Any] = msgspec.json.decode(out)
    return decoded
