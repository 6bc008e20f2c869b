"""Manifests and policies that the documents show: lint finds no error in them."""

import re
from pathlib import Path

import pytest
import yaml
from dra_extender.cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_API = re.compile(r"^apiVersion: (?:v1|resource\.k8s\.io/\S+)$|^version: 1$", re.MULTILINE)


def shown() -> list[tuple[str, str]]:
    """The page and the text of each block that lint reads."""
    return [
        (page.relative_to(ROOT).as_posix(), block)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for _, block in _BLOCK.findall(page.read_text())
        if _API.search(block)
    ]


def test_blocks_of_yaml_can_be_read() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for indent, block in _BLOCK.findall(page.read_text()):
            list(yaml.safe_load_all(re.sub(f"^{indent}", "", block, flags=re.MULTILINE)))


@pytest.mark.parametrize(
    ("page", "block"), shown(), ids=[f"{page}-{number}" for number, (page, _) in enumerate(shown())]
)
def test_lint_finds_no_error(page: str, block: str, tmp_path: Path) -> None:
    file = tmp_path / f"{Path(page).stem}.yaml"
    file.write_text(block)
    done = CliRunner().invoke(app, ["lint", str(file)])
    assert done.exit_code == 0, done.output
