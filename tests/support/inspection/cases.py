"""Clusters that a test module builds, each with the answer that is expected about it."""

from collections.abc import Callable

from tests.support.inspection.made_cluster import MadeCluster

Build = Callable[[MadeCluster], None]


class Cases:
    """Keeps functions that build a cluster, by their names, as the decorator of each: `@case("the expected answer")`."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[Build, str]] = {}

    def __call__(self, expected: str) -> Callable[[Build], Build]:
        def keep(build: Build) -> Build:
            self.by_name[build.__name__] = build, expected
            return build

        return keep
