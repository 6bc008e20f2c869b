"""The description of the package on an index: README.md, whose images and links have addresses there."""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SOURCE: Final = "https://github.com/dra-extender/dra-extender"
_FILES: Final = "https://raw.githubusercontent.com/dra-extender/dra-extender"
_LINK: Final = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+\))")


def described(readme: str, version: str) -> str:
    """Return the text with relative images and links as addresses in the repository at the tag of this version."""

    def addressed(link: re.Match[str]) -> str:
        folder = f"{_FILES}/v{version}" if link[1] else f"{_SOURCE}/blob/v{version}"
        return f"{link[1]}{link[2]}{folder}/{link[3]}"

    return _LINK.sub(addressed, readme)


class ReadmeHook(MetadataHookInterface):
    """Fills in `readme`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description of the package."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, str(metadata["version"]))}
