"""An image of one static program, as an archive in the OCI image layout, made without a registry or any tool.

The same program gives the same bytes: nothing in the archive tells the time, the user or the machine.  `ctr images import`
reads it.  Sources: the OCI image format specification, image-layout.md, manifest.md, config.md and layer.md.
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_MEDIA: Final = "application/vnd.oci.image"
_FOLDERS: Final = ("dev", "etc", "proc", "sys", "tmp")
"""Where a container runtime mounts what every container has."""
_ARCHITECTURES: Final[Mapping[str, str]] = MappingProxyType({"x86_64": "amd64", "aarch64": "arm64"})

Descriptor = Mapping[str, Any]


def write_image(program: Path, archive: Path, *names: str) -> None:
    """Write an archive with one image under every name of `names` ("HOST/NAME:TAG"); its entry point is the program.

    In the image the program lies at /NAME, NAME being its file's name.  Raises OSError where a file cannot be read or written.
    """
    archive.write_bytes(image(program.name, program.read_bytes(), *names))


def image(name: str, program: bytes, *names: str) -> bytes:
    """The bytes of the archive that `write_image` writes, for a program of this name and content."""
    blobs: dict[str, bytes] = {}
    layer = _tar({**dict.fromkeys(_FOLDERS), name: program}, mode=0o755)
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _stored(blobs, _json(config), "config.v1+json"),
        "layers": [_stored(blobs, gzip.compress(layer, mtime=0), "layer.v1.tar+gzip")],
    }
    described = _stored(blobs, _json(manifest), "manifest.v1+json")
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.index.v1+json",
        "manifests": [{**described, "annotations": _named(each)} for each in names],
    }
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    return _tar({**files, **{f"blobs/sha256/{digest}": data for digest, data in blobs.items()}}, mode=0o644)


def architecture() -> str:
    """The machine's architecture as Go and OCI call it; an unknown one under its own name."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _named(name: str) -> Mapping[str, str]:
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}


def _stored(blobs: dict[str, bytes], data: bytes, kind: str) -> Descriptor:
    """Add a blob; its descriptor."""
    digest = _digest(data)
    blobs[digest.removeprefix("sha256:")] = data
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": digest, "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tar(entries: Mapping[str, bytes | None], *, mode: int) -> bytes:
    """A tar file with the entries in their order; None is a folder.  TarInfo's own time, owner and group are zero."""
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            if data is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(data), mode
                tar.addfile(entry, io.BytesIO(data))
    return result.getvalue()
