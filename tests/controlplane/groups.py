"""With `--dist loadgroup`, pytest-xdist gives the tests of a plane to one worker.

The groups of pytest-xdist 3.8 are names that it adds to the ids of tests, which pytest 9.2 does not let it do.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.controlplane.planes import plane_of

FILE: Final = "plane_groups"
"""What tells a worker where to write the planes of the tests."""


class PlaneScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the tests of a plane to one worker."""

    def __init__(self, config: pytest.Config, log: Producer | None, file: Path) -> None:
        super().__init__(config, log)
        self._file = file
        self._planes: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._planes:
            self._planes = json.loads(self._file.read_text())
        return self._planes[nodeid]


class PlaneGroups:
    """Hooks of the process that starts the workers."""

    def __init__(self, config: pytest.Config) -> None:
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        self._file = Path(folder.name) / "groups.json"

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write the planes of the tests."""
        node.workerinput[FILE] = str(self._file)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling:
        return PlaneScheduling(config, log, self._file)


def write_groups(session: pytest.Session) -> None:
    """Write the planes of the tests that this worker has collected, as each worker has; before it says that it has them."""
    if (file := getattr(session.config, "workerinput", {}).get(FILE)) is not None:
        Path(file).write_text(json.dumps({item.nodeid: plane_of(item).name for item in session.items}))
