"""Fixtures of the browser tests.  `make ui-test` runs them; they need programs that `make test` does not."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from dra_extender.inspection.snapshot_file import write_snapshot

from tests.support.inspection.large_cluster import large_cluster

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "examples" / "snapshots" / "fragmented.tar.gz"
collect_ignore_glob = [] if find_spec("selenium") else ["test_*.py"]

if find_spec("selenium"):
    from tests.ui.browser import Browser, ServedPage, browser, served_page


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", default=".test-reports/ui", help="Where pictures of the views go.")


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest) -> Path:
    return ROOT / str(request.config.getoption("--screenshots"))


@pytest.fixture(scope="session")
def window() -> "Iterator[Browser]":
    with browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def example() -> "Iterator[ServedPage]":
    """The page over the example snapshot."""
    with served_page("--snapshot", EXAMPLE.name, folder=EXAMPLE.parent) as served:
        yield served


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServedPage]":
    """The page over 200 nodes with eight devices each."""
    file = tmp_path_factory.mktemp("full") / "full.tar.gz"
    write_snapshot(large_cluster(200, devices=8).cluster(), file)
    with served_page("--snapshot", file.name, folder=file.parent) as served:
        yield served


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServedPage]":
    """The page over 5,000 nodes with 20,000 devices."""
    file = tmp_path_factory.mktemp("large") / "large.tar.gz"
    write_snapshot(large_cluster(5000).cluster(), file)
    with served_page("--snapshot", str(file)) as served:
        yield served
