from app.kube.errors import Intent
from app.kube.kinds import CLAIM_TEMPLATES
from app.kube.requests import perform
from app.kube.settings import KubeSettings
from app.kube.transport import Call, Transport


class KubeClaimTemplates:
    """ResourceClaimTemplates of an API server (`app.scheduling.ports.ClaimTemplates`)."""

    def __init__(self, transport: Transport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts

    async def read(self, namespace: str, name: str) -> bytes:
        """The live object.  Raises NotFound, Refused, Unavailable."""
        intent = Intent("get", CLAIM_TEMPLATES.plural, f"{namespace}/{name}")
        path = CLAIM_TEMPLATES.path(namespace, name)
        return await perform(self._transport, Call(intent, "GET", path, self._timeouts.read))
