"""What the contract asks of an API server, of the simulated one and of the real one alike."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec
from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery import Discovery, ServerFacts
from dra_extender.runtime.clock import SystemClock
from dra_extender.telemetry.observer import Observer

from tests.support.turns import turns

Object = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
WATCH_SECONDS: Final = 30.0
"""The longest that a test waits for events: virtual seconds of the simulated server."""


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP code, headers, and the body as JSON, or as text where it is none."""

    code: int
    headers: Mapping[str, str]
    body: Any

    @property
    def refusal(self) -> tuple[int, str]:
        """Code and reason of a Status."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["code"] == self.code
        return self.code, self.body["reason"]

    @property
    def version(self) -> int:
        """The resourceVersion of the object or list."""
        return int(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def invalid_fields(self) -> set[str]:
        """The fields for which an object was refused."""
        assert self.refusal == (422, "Invalid")
        return {cause["field"] for cause in self.body["details"]["causes"]}


class ContractServer(ABC):
    """An API server, asked as its administrator, or in the name of somebody else.

    `namespace` is that of the test, and a prefix for what has none.
    """

    def __init__(self, url: str, token: str, authority: str, settings: KubeSettings) -> None:
        self.namespace = ""
        self.token = token
        self.settings = settings
        trust = ssl.create_default_context(cadata=authority) if authority else True
        self._session = aiohttp.ClientSession(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "contract/1"},
            connector=aiohttp.TCPConnector(ssl=trust),
            timeout=aiohttp.ClientTimeout(total=WATCH_SECONDS * 2),
        )

    async def close(self) -> None:
        """Close the connections; return when their transports have ended, too, which needs the event loop."""
        await self._session.close()
        await turns()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = "application/json",
        user: str = "",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send a request; `body` is an object, or bytes to be sent as they are."""
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        head = {**({"Content-Type": media} if data is not None else {}), **(headers or {})}
        if user:
            head["Impersonate-User"] = user
        async with self._session.request(method, path, data=data, params=query, headers=head) as answer:
            return Answer(answer.status, dict(answer.headers), _decoded(await answer.read()))

    async def events(self, path: str, *, count: int = 0, **query: str) -> list[Object]:
        """The first `count` events of a watch, or all until the server ends it."""
        found: list[Object] = []
        async with asyncio.timeout(WATCH_SECONDS), self.watch(path, **query) as answer:
            assert answer.status == 200, await answer.text()
            # The lines are short here.
            while not count or len(found) < count:
                line = await answer.content.readline()
                if not line:
                    break
                found.append(msgspec.json.decode(line))
        return found

    def watch(self, path: str, **query: str) -> Any:
        """An open watch, as a context."""
        return self._session.get(path, params={"watch": "true", **query})

    def claims(self, name: str = "", subresource: str = "") -> str:
        """The path of the claims of the test's namespace, or of one."""
        return self.path("resource.k8s.io/v1", "resourceclaims", name, subresource)

    def pods(self, name: str = "", subresource: str = "") -> str:
        """The path of the pods of the test's namespace, or of one."""
        return self.path("v1", "pods", name, subresource)

    def path(self, group_version: str, plural: str, name: str = "", subresource: str = "") -> str:
        """The path of a collection in the test's namespace, or of an object there."""
        root = "/apis" if "/" in group_version else "/api"
        parts = (root, group_version, "namespaces", self.namespace, plural, name, subresource)
        return "/".join(part for part in parts if part)

    async def facts(self) -> ServerFacts:
        """What the service discovers."""
        transport = ApiTransport(self.settings, SystemClock(), Observer())
        transport.connect(await find_credentials(self.settings, SystemClock()))
        try:
            return await Discovery(transport, self.settings).facts()
        finally:
            await transport.close()

    @abstractmethod
    async def grant(self, user: str, rules: Sequence[Object]) -> None:
        """Let a user do what these rules of a ClusterRole allow; return when they are in force."""

    @abstractmethod
    async def compact(self) -> None:
        """Let the server forget every version before the present one."""

    @abstractmethod
    async def deny(self, label: str, reason: str) -> None:
        """From now on a ValidatingAdmissionPolicy denies, for this reason, to create claims with this label."""


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode(errors="replace")
