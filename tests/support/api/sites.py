import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dra_extender.api.application import create_app
from dra_extender.api.calls import VerbGate
from dra_extender.api.health import Health
from dra_extender.config.service_settings import ServerSettings
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.telemetry.metrics import Metrics
from fastapi import FastAPI

BODY_LIMIT = 100_000


@dataclass
class ScriptedVerbs:
    """Records what it was asked, and answers what the test wants; by default everything fits."""

    filtered: list[tuple[Pod, Sequence[str]]] = field(default_factory=list)
    bound: list[tuple[str, str, str, str]] = field(default_factory=list)
    proposed: list[Mapping[str, Sequence[str]]] = field(default_factory=list)
    answer: FilterResponse | None = None
    scores: Mapping[str, int] = field(default_factory=dict)
    victims: Mapping[str, Sequence[str]] | None = None
    raises: Exception | None = None
    park: bool = False
    hung_up: asyncio.Event | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def _maybe_raise(self) -> None:
        if self.raises is not None:
            raise self.raises

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        self._maybe_raise()
        self.filtered.append((pod.read(), nodes))
        return self.answer or FilterResponse(nodes)

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        self._maybe_raise()
        pod.read()
        return [(node, self.scores.get(node, 0)) for node in nodes]

    async def bind(self, namespace: str, name: str, uid: str, node: str, hung_up: asyncio.Event) -> None:
        self._maybe_raise()
        self.bound.append((namespace, name, uid, node))
        self.hung_up = hung_up
        self.entered.set()
        if self.park:
            await hung_up.wait()
        self.finished.set()

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        self._maybe_raise()
        self.proposed.append(victims)
        return victims if self.victims is None else self.victims


@dataclass
class Site:
    """An application and everything it was made of."""

    app: FastAPI
    verbs: ScriptedVerbs
    health: Health
    metrics: Metrics
    gate: VerbGate


def make_site(settings: ServerSettings | None = None) -> Site:
    verbs, health, metrics, gate = ScriptedVerbs(), Health(), Metrics(), VerbGate(None)
    settings = settings or ServerSettings(body_limit_bytes=BODY_LIMIT)
    return Site(create_app(verbs, health, metrics, settings, gate), verbs, health, metrics, gate)
