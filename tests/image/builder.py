"""Builds the image of the Dockerfile without a daemon, in storage of its own."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LOCAL_BASE: Final = "localhost/dra-extender-base:local"
NAME: Final = "localhost/dra-extender"
BUILDAH: Final = shutil.which("buildah") or "buildah"
SECONDS: Final = 1500.0
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ANY_SIGNATURE: Final = {"default": [{"type": "insecureAcceptAnything"}]}
"""buildah asks for a policy; what is pulled here is a base that PYTHON_IMAGE names."""


@dataclass(frozen=True)
class Image:
    """A built image as an OCI layout, and its files below `files`."""

    name: str
    layout: Path
    files: Path

    @cached_property
    def digest(self) -> str:
        """Of the manifest: with it everything in the image is told."""
        (described,) = json.loads((self.layout / "index.json").read_text())["manifests"]
        return str(described["digest"])

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return self._blob(self.digest)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The configuration, with `config`, `history` and `rootfs`."""
        return self._blob(self.manifest["config"]["digest"])

    @property
    def layers(self) -> list[Path]:
        """The compressed layers, lowest first."""
        return [self._path(each["digest"]) for each in self.manifest["layers"]]

    def _blob(self, digest: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self._path(digest).read_text())
        return found

    def _path(self, digest: str) -> Path:
        return self.layout / "blobs" / digest.replace(":", "/")


class Builder:
    """buildah with images below a folder, which is all that it writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._policy = folder / "policy.json"
        self._policy.write_text(json.dumps(ANY_SIGNATURE))

    def base_of(self, archive: Path) -> str:
        """Take the files of an archive as an image to build on; returns its name."""
        made = self._call("from", "scratch")
        self._call("add", made, str(archive), "/")
        self._call("config", "--env", f"PATH={PATH}", "--cmd", "python", made)
        self._call("commit", "--quiet", "--timestamp", "0", "--rm", made, LOCAL_BASE)
        return LOCAL_BASE

    def build(self, context: Path, base: str, tag: str, *, epoch: int, arguments: Sequence[str] = ()) -> Image:
        """Build without any step of an earlier build; `epoch` is the time that is written into the image, in seconds.

        Raises:
            CalledProcessError: a step failed; buildah says which on standard error.
        """
        name = f"{NAME}:{tag}"
        options = ["--isolation", "chroot", "--format", "oci", "--no-cache", "--quiet", "--tag", name]
        options += ["--timestamp", str(epoch), "--build-arg", f"PYTHON_IMAGE={base}"]
        options += [f"--build-arg={each}" for each in arguments]
        options += [f"--secret=id={key},src={path}" for key, path in self._secrets().items()]
        self._call("build", *options, "--file", str(context / "Dockerfile"), str(context))
        layout = self._folder / f"layout-{tag}"
        self._call("push", "--quiet", name, f"oci:{layout}:{tag}")
        container = self._call("from", "--pull-never", name)
        return Image(name, layout, Path(self._call("mount", container)))

    def keep(self, image: Image, file: Path) -> None:
        """Write an image to an OCI archive, which other programs load."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        self._call("push", "--quiet", image.name, f"oci-archive:{file}:{image.name}")

    def _secrets(self) -> dict[str, Path]:
        """The index and the certificate authority that pip is told of on this machine, for pip in the build.

        The authority comes with each build: where there is none to pass on, the file is that of the machine.
        """
        authority = next(
            (
                Path(found)
                for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
                if (found := os.environ.get(name))
            ),
            None,
        )
        lines = ["[global]"]
        if index := os.environ.get("PIP_INDEX_URL"):
            lines.append(f"index-url = {index}")
        if authority is not None:
            lines.append("cert = /run/secrets/ca")
        settings = self._folder / "pip.conf"
        settings.write_text("\n".join(lines) + "\n")
        return {"pip": settings} | ({"ca": authority} if authority is not None else {})

    def _call(self, command: str, *arguments: str) -> str:
        """Standard output of buildah without the end of its line."""
        storage = ["--root", str(self._folder / "root"), "--runroot", str(self._folder / "run")]
        policy = ["--signature-policy", str(self._policy)] if command in {"build", "from", "push", "commit"} else []
        done = subprocess.run(
            [BUILDAH, *storage, "--storage-driver", "vfs", command, *policy, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout.strip()
