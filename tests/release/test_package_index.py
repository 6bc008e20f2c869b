"""What a package index shows of the project."""

import re
from pathlib import Path

import hatch_build

ROOT = Path(__file__).parents[2]


def test_images_and_links_of_the_readme_have_addresses_at_the_tag() -> None:
    shown = hatch_build.described((ROOT / "README.md").read_text(), "1.2.3")
    images, links = (re.findall(rf"{mark}\[[^\]]*\]\(([^)\s]+)\)", shown) for mark in ("!", "(?<!!)"))
    assert images
    assert [each for each in (*images, *links) if not each.startswith("https://")] == []
    assert {each.partition("/docs/")[0] for each in images} == {
        "https://raw.githubusercontent.com/dra-extender/dra-extender/v1.2.3"
    }
    inside = [each for each in links if "/blob/" in each]
    assert all((ROOT / each.partition("/blob/v1.2.3/")[2].partition("#")[0]).exists() for each in inside)
