from dra_extender.kube.errors import Intent
from dra_extender.kube.kinds import CLAIM_TEMPLATES
from dra_extender.kube.requests import perform
from dra_extender.kube.settings import KubeSettings
from dra_extender.kube.transport import Call, Transport


class KubeClaimTemplates:
    """ResourceClaimTemplates of an API server (`dra_extender.scheduling.ports.cluster.ClaimTemplates`)."""

    def __init__(self, transport: Transport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts

    async def read(self, namespace: str, name: str) -> bytes:
        """The live object.  Raises NotFound, Refused, Unavailable."""
        intent = Intent("get", CLAIM_TEMPLATES.plural, f"{namespace}/{name}")
        path = CLAIM_TEMPLATES.path(namespace, name)
        return await perform(self._transport, Call(intent, "GET", path, self._timeouts.read))
