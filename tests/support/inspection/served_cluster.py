"""A made cluster behind the simulated API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dra_extender.kube.client.objects import CLAIM_TEMPLATES, DISRUPTION_BUDGETS, WATCHED
from dra_extender.runtime.clock import SystemClock
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.simulation.api_discovery import Release
from tests.simulation.api_server import ApiServer
from tests.support.inspection.made_cluster import MadeCluster

PATHS: Final = {each.plural: each.path() for each in (*WATCHED.values(), CLAIM_TEMPLATES, DISRUPTION_BUDGETS)}
"""The path of each kind in the whole cluster."""
# Events are read in the version that all their writers know.
_RELEASE: Final = Release(
    without=frozenset({StoredKind.POD_GROUP, StoredKind.TAINT_RULE}), versions={StoredKind.EVENT: "v1"}
)


@asynccontextmanager
async def served(made: MadeCluster) -> AsyncIterator[ApiServer]:
    """Serve these objects, and neither PodGroups nor taint rules."""
    server = ApiServer(SystemClock(), release=_RELEASE)
    for kind in PATHS:
        for item in made.objects[kind]:
            server.put(StoredKind(kind), item)
    await server.start()
    yield server
    server.stop()
