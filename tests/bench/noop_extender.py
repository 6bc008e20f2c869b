"""An extender that decides nothing: every node fits, and bind writes a made-up allocation.  A ceiling for any extender in Python.

It makes the same three writes as the product (finalizer and annotation, status, Binding) over as many connections, from watched
claims, and checks nothing: not what is free, not what the server kept, not who else wrote.  It may be told that the pods of one
namespace fit nowhere: what these cost others is what they cost with any extender.
"""

import argparse
import asyncio
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tests.bench import workload
from tests.bench.asgi import serve
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS

_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
# As long as the annotation that the product writes for one device.
_ANNOTATION: Final = {"bench.example.com/allocation-snapshot": "x" * 130}


class _Metadata(msgspec.Struct, gc=False):
    namespace: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Filter(msgspec.Struct, gc=False):
    Pod: _Pod
    NodeNames: list[str]


class _Score(msgspec.Struct, gc=False):
    Host: str
    Score: int


class _Bind(msgspec.Struct, gc=False):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


FILTER: Final = msgspec.json.Decoder(_Filter)
_BIND: Final = msgspec.json.Decoder(_Bind)
_encode: Final = msgspec.json.Encoder().encode


class NoopExtender:
    """The verbs."""

    def __init__(self, api: ApiClient, refused: str = "") -> None:
        """Pods of the namespace `refused` fit nowhere."""
        self._api = api
        self._refused = refused
        self._claims: dict[tuple[str, str], dict[str, Any]] = {}
        self._pods: dict[tuple[str, str], str] = {}
        self._numbers = count()

    async def load(self) -> None:
        """Learn what exists."""
        for found in await self._api.list(RESOURCE_CLAIMS):
            self._keep_claim(found)
        for found in await self._api.list(PODS):
            self._keep_pod(found)

    async def follow_claims(self) -> None:
        """Keep claims as the watch brings them."""
        async with self._api.watch(RESOURCE_CLAIMS) as events:
            async for event in events:
                self._keep_claim(event["object"])

    async def follow_pods(self) -> None:
        """Keep which claim belongs to which pod."""
        async with self._api.watch(PODS) as events:
            async for event in events:
                self._keep_pod(event["object"])

    async def answer(self, path: str, body: bytes) -> bytes:
        if path == "/filter":
            asked = FILTER.decode(body)
            if asked.Pod.metadata.namespace == self._refused:
                refused = dict.fromkeys(asked.NodeNames, "no device matches")
                return _encode({"NodeNames": [], "FailedAndUnresolvableNodes": refused})
            return _encode({"NodeNames": asked.NodeNames})
        if path == "/prioritize":
            return _encode([_Score(name, 0) for name in FILTER.decode(body).NodeNames])
        if path == "/bind":
            await self._bind(_BIND.decode(body))
            return b'{"Error":""}'
        return b"{}"

    async def _bind(self, asked: _Bind) -> None:
        namespace, name = asked.PodNamespace, asked.PodName
        while (namespace, name) not in self._pods:  # noqa: ASYNC110 - kube-scheduler's watch may be ahead of ours for a moment
            await asyncio.sleep(0.001)
        claim = self._claims[namespace, self._pods[namespace, name]]
        metadata = {**claim["metadata"], "finalizers": [_FINALIZER], "annotations": _ANNOTATION}
        stored = await self._api.replace(RESOURCE_CLAIMS, {**claim, "metadata": metadata})
        await self._api.replace(RESOURCE_CLAIMS, {**stored, "status": self._status(asked)}, "status")
        binding = objects.binding(name, namespace, asked.Node)
        binding["metadata"]["uid"] = asked.PodUID
        await self._api.create(PODS, binding, name=name, subresource="binding")

    def _keep_claim(self, found: dict[str, Any]) -> None:
        self._claims[found["metadata"]["namespace"], found["metadata"]["name"]] = found

    def _keep_pod(self, found: dict[str, Any]) -> None:
        name: str = found["spec"]["resourceClaims"][0]["resourceClaimName"]
        self._pods[found["metadata"]["namespace"], found["metadata"]["name"]] = name

    def _status(self, asked: _Bind) -> dict[str, Any]:
        device = workload.device_name(next(self._numbers) % workload.DEVICES_PER_NODE)
        return objects.allocated(
            {"request": workload.REQUEST, "driver": objects.DRIVER, "pool": asked.Node, "device": device},
            consumers=[objects.consumer(asked.PodName, asked.PodUID)],
            nodeSelector=objects.on_node(asked.Node),
            allocationTimestamp="2026-01-01T00:00:00Z",
        )


async def run(kubeconfig: Path, host: str, port: int, refused: str) -> None:
    """Serve until asked to stop."""
    async with ApiClient.from_kubeconfig(kubeconfig) as api:
        extender = NoopExtender(api, refused)
        await extender.load()
        following = [asyncio.create_task(extender.follow_claims()), asyncio.create_task(extender.follow_pods())]
        await serve(extender.answer, host, port)
        for each in following:
            each.cancel()


def main() -> None:
    """Command line, as far as it is that of the product's `serve`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--refuse", default="", help="namespace whose pods fit nowhere")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(arguments.kubeconfig, arguments.host, arguments.port, arguments.refuse))


if __name__ == "__main__":
    main()
