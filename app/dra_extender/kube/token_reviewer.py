"""Asks the API server whose a token is, and what that user may do (TokenReview, SubjectAccessReview)."""

import asyncio
from typing import Any, Final

import msgspec

from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.model.api_json import Value
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.telemetry.observer import Observer

TOKEN_REVIEWS: Final = ResourceKind("tokenreviews", "authentication.k8s.io/v1", namespaced=False)
ACCESS_REVIEWS: Final = ResourceKind("subjectaccessreviews", "authorization.k8s.io/v1", namespaced=False)
_MOST_BYTES: Final = 1 << 20


class _User(Value, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(Value, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Value, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Value, frozen=True):
    allowed: bool = False


class _AccessReview(Value, frozen=True):
    status: _AccessStatus = _AccessStatus()


class TokenReviewer:
    """Reviews tokens over a connection of its own: a replica that does not lead may not write, but is scraped as well."""

    def __init__(self, settings: KubeSettings, observer: Observer) -> None:
        self._settings = settings
        self._transport = ApiTransport(settings, observer=observer)
        self._connected = False
        self._lock = asyncio.Lock()

    async def review(self, token: str) -> tuple[str, bool]:
        """Return the user's name (empty: the token is nobody's), and whether that user may `get` the non-resource URL /metrics.

        Raises:
            ClusterError: the API server does not answer, or does not let us ask.
        """
        try:
            async with self._lock:
                if not self._connected:
                    await self._transport.open()
                    self._connected = True
            answer = await self._create(TOKEN_REVIEWS, "TokenReview", {"token": token})
            status = msgspec.json.decode(answer, type=_TokenReview).status
            user = status.user if status.authenticated else _User()
            return user.username, bool(user.username) and await self._allowed(user)
        except ApiCallError as failed:
            raise failed.as_cluster_error() from failed
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise ServerUnavailableError(f"the answer to a review cannot be read: {problem}") from problem
        except ConfigurationError as problem:
            raise ServerUnavailableError(str(problem)) from problem

    async def close(self) -> None:
        await self._transport.close()

    async def _allowed(self, user: _User) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or (),
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
        answer = await self._create(ACCESS_REVIEWS, "SubjectAccessReview", spec)
        return msgspec.json.decode(answer, type=_AccessReview).status.allowed

    async def _create(self, kind: ResourceKind, name: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": kind.group_version, "kind": name, "spec": spec})
        intent = RequestIntent("create", kind.plural, "a scrape")
        return await self._transport.send(
            ApiCall(intent, "POST", kind.path(), self._settings.timeouts.read, body=body, max_bytes=_MOST_BYTES)
        )
