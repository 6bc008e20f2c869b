"""A folder whose files are all exchanged in one moment, as kubelet does with a mounted Secret."""

import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path


class MountedFolder:
    """The files are links through `..data`, which is a link to the folder of the moment."""

    def __init__(self, path: Path, files: Mapping[str, bytes]) -> None:
        path.mkdir()
        self.path = path
        self._numbers = count()
        self.exchange(files)
        for name in files:
            (path / name).symlink_to(Path("..data") / name)

    def exchange(self, files: Mapping[str, bytes]) -> None:
        """Put these in the place of the files before."""
        folder = self.path / f"..{next(self._numbers)}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        link = self.path / "..next"
        link.symlink_to(folder.name)
        os.replace(link, self.path / "..data")  # noqa: PTH105 - a link is replaced, not what it leads to

    def __truediv__(self, name: str) -> Path:
        return self.path / name
