import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CHART = REPOSITORY / "helm" / "dra-extender"
MANIFESTS = REPOSITORY / "deploy" / "base"
OVERLAYS = REPOSITORY / "deploy" / "overlays"
SCHEDULER_CONFIGURATION = MANIFESTS / "scheduler-config" / "kube-scheduler.yaml"
RELEASE = NAMESPACE = "dra-extender"
SECONDS = 60.0

Object = dict[str, Any]


def overlay(version: str) -> Path:
    """The manifests for a release of Kubernetes."""
    return OVERLAYS / ".".join(version.removeprefix("v").split(".")[:2])


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended: exit code and what it printed."""

    code: int
    output: str
    words: str


def run(*command: str | Path, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> Done:
    """Runs a program to its end, whatever its exit code."""
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def documents(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


@dataclass(frozen=True, slots=True)
class Helm:
    """The helm program, away from the settings of whoever runs the tests; `version` is what it takes the cluster for."""

    program: Path
    home: Path
    version: str

    def template(self, *arguments: str, values: Object | None = None) -> list[Object]:
        """What the chart installs; fails with helm's words when it refuses."""
        done = self.run("template", "--skip-tests", *arguments, values=values)
        assert done.code == 0, done.words
        return documents(done.output)

    def refusal(self, values: Object) -> str:
        """The words with which helm refuses these values."""
        done = self.run("template", values=values)
        assert done.code != 0, f"helm accepts {values}"
        return done.words

    def notes(self, values: Object | None = None) -> str:
        """What an installation would print at its end."""
        done = self.run("install", "--dry-run=client", "--set", f"scheduler.image.tag={self.version}", values=values)
        assert done.code == 0, done.words
        return done.output.partition("\nNOTES:\n")[2]

    def run(self, verb: str, *arguments: str, values: Object | None = None) -> Done:
        """`helm template`, `lint` or `install` of the chart."""
        release = () if verb == "lint" else (RELEASE,)
        cluster = () if verb == "install" else ("--kube-version", self.version)
        command = (verb, *release, str(CHART), "--namespace", NAMESPACE, *cluster, *arguments)
        return self.call(*command, values=values or {})

    def call(self, *arguments: str, values: Object | None = None, kubeconfig: str | Path = os.devnull) -> Done:
        """Any call of helm."""
        given = () if values is None else ("--values", "-")
        return run(
            self.program,
            *arguments,
            *given,
            stdin=None if values is None else json.dumps(values),
            environment=self.environment(kubeconfig),
        )

    def environment(self, kubeconfig: str | Path) -> dict[str, str]:
        """Folders of helm's own."""
        home = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {**home, "KUBECONFIG": str(kubeconfig)}


@dataclass(frozen=True, slots=True)
class KubeScheduler:
    """The kube-scheduler program as a checker of configurations: it validates one, completes it, and needs no API server."""

    program: Path
    folder: Path

    def complete(self, configuration: Object) -> Object:
        """The configuration as kube-scheduler would run it; fails with its words when it refuses."""
        given, written, kubeconfig = (self.folder / name for name in ("given.json", "written.yaml", "kubeconfig.json"))
        kubeconfig.write_text(json.dumps(NOWHERE))
        client = {**configuration.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        given.write_text(json.dumps({**configuration, "clientConnection": client}))
        written.unlink(missing_ok=True)
        done = run(self.program, "--config", given, "--write-config-to", written, "--secure-port", "0")
        assert done.code == 0, done.words
        (completed,) = documents(written.read_text())
        return completed


NOWHERE: Object = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {"token": "none"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "current-context": "none",
}


def enabled_plugins(configuration: Object) -> Iterator[str]:
    """Plugins that are on, at any extension point, in a completed configuration."""
    for profile in configuration["profiles"]:
        for point in profile["plugins"].values():
            yield from (plugin["name"] for plugin in point.get("enabled", ()))
