import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.chart.programs import MANIFESTS, Helm, KubeScheduler, Object, documents, overlay, run
from tests.chart.value_sets import OUTSIDE
from tests.controlplane.build import CONTROL_PLANE, HELM, HELM_3, KUBECONFORM, PROMTOOL, BuildError, ensure, pinned

BUILT = pytest.StashKey[dict[str, Path | BuildError]]()
_LONG_BUILDS = {"helm": HELM, "helm3": HELM_3, "promtool": PROMTOOL}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what takes minutes the first time before the first test: the time limit is for tests."""
    built = session.stash[BUILT] = {}
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for name, target in _LONG_BUILDS.items():
        if name in wanted:
            capture = session.config.pluginmanager.getplugin("capturemanager")
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                try:
                    built[name] = ensure(target)
                except BuildError as error:
                    built[name] = error


@pytest.fixture(scope="session")
def kubernetes_version() -> str:
    """The release that the control plane of the tests is built from."""
    return pinned((CONTROL_PLANE.module / "go.mod").read_text(), "k8s.io/kubernetes")


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kubernetes_version: str) -> Helm:
    """helm; fails with the builder's sentence if it cannot be built."""
    return Helm(_built(request, "helm"), tmp_path_factory.mktemp("helm"), kubernetes_version)


@pytest.fixture(scope="session")
def helm3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kubernetes_version: str) -> Helm:
    """helm of the major version 3; fails with the builder's sentence if it cannot be built."""
    return Helm(_built(request, "helm3"), tmp_path_factory.mktemp("helm3"), kubernetes_version)


@pytest.fixture(scope="session")
def promtool(request: pytest.FixtureRequest) -> Path:
    """The program promtool; fails with the builder's sentence if it cannot be built."""
    return _built(request, "promtool")


def _built(request: pytest.FixtureRequest, name: str) -> Path:
    folder = request.session.stash[BUILT][name]
    if isinstance(folder, BuildError):
        pytest.fail(str(folder), pytrace=False)
    return folder / name


@pytest.fixture(scope="session")
def kubeconform() -> Path:
    """The program kubeconform; fails with the builder's sentence if it cannot be built."""
    try:
        return ensure(KUBECONFORM) / "kubeconform"
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def kube_scheduler(binaries: Path, tmp_path: Path) -> KubeScheduler:
    """kube-scheduler as a checker of configurations."""
    return KubeScheduler(binaries / "kube-scheduler", tmp_path)


@pytest.fixture(scope="session")
def manifests(binaries: Path, kubernetes_version: str) -> list[Object]:
    """What `kubectl apply -k` of the overlay for that release would apply."""
    return kustomized(binaries, overlay(kubernetes_version))


@pytest.fixture(scope="session")
def manifests_with_group_claims(
    binaries: Path, kubernetes_version: str, tmp_path_factory: pytest.TempPathFactory
) -> list[Object]:
    """The same once the line for claims of PodGroups is uncommented."""
    copied = tmp_path_factory.mktemp("manifests") / "deploy"
    shutil.copytree(MANIFESTS.parent, copied)
    folder = copied / overlay(kubernetes_version).relative_to(MANIFESTS.parent)
    file = folder / "kustomization.yaml"
    text = file.read_text()
    line = "components: [../../components/group-claims]\n"
    assert f"\n# {line}" in text
    file.write_text(text.replace(f"# {line}", line))
    return kustomized(binaries, folder)


def kustomized(binaries: Path, folder: Path) -> list[Object]:
    return documents(kustomized_text(binaries, folder))


def kustomized_text(binaries: Path, folder: Path) -> str:
    done = run(binaries / "kubectl", "kustomize", folder, environment={"KUBECONFIG": os.devnull, "KUBERC": "off"})
    assert done.code == 0, done.words
    return done.output


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Callable[[str], list[Object]]:
    """The chart's objects in a mode."""

    def render(mode: str) -> list[Object]:
        return helm.template(values=OUTSIDE if mode == "extenderOnly" else {"mode": mode})

    return render
