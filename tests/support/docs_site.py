"""Builds the site of the documents: stages them, runs the generator strictly, and checks what the pages load.

`python -m tests.support.docs_site` builds into `.site/html`.  It fails if a link leads nowhere, if a document is in no section of
the navigation, or if a page loads anything from elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
DOCS: Final = ROOT / "docs"
SITE: Final = ROOT / ".site"
_CONFIGURATION: Final = ROOT / "zensical.toml"
_OF_THE_TOP: Final = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "RELEASE.md",
    "SECURITY.md",
    "helm/dra-extender/README.md",
)
# The first page of the site is docs/index.md; documents link to README.md.
_OUTSIDE_NAVIGATION: Final = "project/README.md"
_FENCE: Final = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
_LOADS: Final = re.compile(
    r"<(?:script|img|iframe|source|embed)[^>]*?\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link(?![^>]*\brel=[\"']?(?:canonical|alternate|next|prev))[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
# The theme's script fetches what draws such a block when a page has one.
_FETCHED_LATER: Final = re.compile(r"class=[\"']?(mermaid)\b")
_LOADS_OF_STYLE: Final = re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')\s]+)")


def staged_path(source: Path) -> Path:
    """Where a file of the repository is among the staged documents, relative to them."""
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS)
    return Path("project" if source.suffix == ".md" else "files") / source.relative_to(ROOT)


def stage(target: Path) -> None:
    """Copy all documents to a folder, with what they link to, so that each link stays within it."""
    shutil.copytree(DOCS, target)
    sources = [*DOCS.rglob("*.md"), *(ROOT / name for name in _OF_THE_TOP)]
    for source in sources:
        text = _outside_fences(source.read_text(), partial(_with_staged_links, source, target))
        path = target / staged_path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _with_staged_links(source: Path, target: Path, text: str) -> str:
    def staged(link: re.Match[str]) -> str:
        name, mark, section = link[2].partition("#")
        if not name or re.match(r"[a-z]+:", name):
            return link[0]
        linked = (source.parent / name).resolve()
        path = _provided(linked, target)
        return f"{link[1]}{os.path.relpath(path, staged_path(source).parent)}{mark}{section}{link[3]}"

    return _LINK.sub(staged, text)


def _provided(linked: Path, target: Path) -> Path:
    """The staged path of what a link means; a folder is shown by its index."""
    path = staged_path(linked)
    if linked.is_dir():
        path /= next((each for each in ("README.md", "index.md") if (linked / each).exists()), "index.md")
    elif linked.suffix == ".md":
        return path
    if not (target / path).exists():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if linked.is_dir():
            _write_index(linked, target / path)
        else:
            shutil.copyfile(linked, target / path)
    return path


def _write_index(folder: Path, index: Path) -> None:
    """Make a page that links to the files of a folder, which are copied beside it."""
    files = sorted(each for each in folder.iterdir() if each.is_file())
    for each in files:
        shutil.copyfile(each, index.parent / each.name)
    index.write_text("\n".join([f"# {folder.name}", "", *(f"* [{each.name}]({each.name})" for each in files), ""]))


def pages_in_navigation() -> frozenset[str]:
    """The documents that the navigation names."""
    return frozenset(_leaves(tomllib.loads(_CONFIGURATION.read_text())["project"]["nav"]))


def _leaves(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from _leaves(value)
    elif isinstance(entry, list):
        for each in entry:
            yield from _leaves(each)


def unreachable(staged: Path) -> list[str]:
    """Staged documents that the navigation does not lead to."""
    named = pages_in_navigation()
    pages = sorted(path.relative_to(staged).as_posix() for path in staged.rglob("*.md"))
    return [
        page for page in pages if page not in named and page != _OUTSIDE_NAVIGATION and not page.endswith("/index.md")
    ]


def loaded_from_elsewhere(html: Path) -> list[str]:
    """What pages and styles of a built site load from other hosts; links that a reader follows do not count."""
    found = set()
    for path in html.rglob("*"):
        if path.suffix == ".html":
            text = path.read_text()
            loads = [*map("".join, _LOADS.findall(text)), *_FETCHED_LATER.findall(text)]
            found |= {f"{path.relative_to(html)}: {each}" for each in loads}
        elif path.suffix == ".css":
            found |= {f"{path.relative_to(html)}: {each}" for each in _LOADS_OF_STYLE.findall(path.read_text())}
    return sorted(found)


def main() -> int:
    """Exit status 0 if the site is built and nothing is wrong with it."""
    shutil.rmtree(SITE, ignore_errors=True)
    stage(SITE / "docs")
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [program, "build", "--clean", "--strict", "--config-file", _CONFIGURATION],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        sys.stderr.write(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr.partition("Traceback")[0]))
        return 1
    wrong = [f"no section of the navigation has {page}" for page in unreachable(SITE / "docs")]
    wrong += [f"loaded from elsewhere: {each}" for each in loaded_from_elsewhere(SITE / "html")]
    sys.stderr.writelines(f"{each}\n" for each in wrong)
    if not wrong:
        print(f"{len(list((SITE / 'html').rglob('*.html')))} pages in {(SITE / 'html').relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
