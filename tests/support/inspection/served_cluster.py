"""A made cluster behind an API server of lists and watches."""

from dra_extender.kube.client.resources import CLAIM_TEMPLATES, WATCHED

from tests.support.inspection.made_cluster import Json, MadeCluster
from tests.support.kube.fake_api_server import FakeApiServer

PATHS = {each.plural: each.path() for each in (*WATCHED.values(), CLAIM_TEMPLATES)}


def serve(server: FakeApiServer, made: MadeCluster) -> None:
    """Let the server have these objects, and no PodGroups."""
    server.pages |= {
        "/version": {"gitVersion": "v1.37.1", "minor": "37"},
        "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
        "/apis/resource.k8s.io/v1": {"resources": [{"name": "resourceclaims"}]},
    }
    for kind, path in PATHS.items():
        server.objects.setdefault(path, {})
        for each in made.objects[kind]:
            put(server, kind, each)


def put(server: FakeApiServer, kind: str, item: Json) -> None:
    """Create or change an object."""
    metadata = item["metadata"]
    rest = {name: value for name, value in item.items() if name != "metadata"}
    stored = server.put(PATHS[kind], metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"], **rest)
    stored["metadata"] = {**metadata, **stored["metadata"]}
