from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.resources import CLAIM_TEMPLATES
from dra_extender.kube.client.retry import perform
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport


class KubeClaimTemplates:
    """ResourceClaimTemplates of an API server (`dra_extender.scheduling.ports.cluster.ClaimTemplates`)."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts

    async def read(self, namespace: str, name: str) -> bytes:
        """The live object.  Raises NotFound, Refused, Unavailable."""
        intent = RequestIntent("get", CLAIM_TEMPLATES.plural, f"{namespace}/{name}")
        path = CLAIM_TEMPLATES.path(namespace, name)
        return await perform(self._transport, ApiCall(intent, "GET", path, self._timeouts.read))
