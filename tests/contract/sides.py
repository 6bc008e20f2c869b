import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.simulator.virtual_time import VirtualClock, running_virtual_loop

from tests.contract.contract_server import ContractServer, Object
from tests.controlplane import objects
from tests.controlplane.cluster import ADMIN, ControlPlane
from tests.controlplane.kubeconfig import read_kubeconfig
from tests.controlplane.waiting import wait_for
from tests.simulation.api_access import User
from tests.simulation.api_discovery import Release
from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import ApiServer, policy_denial

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"
_EFFECT_SECONDS: Final = 30.0


class SimulatedServer(ContractServer):
    """The simulated server on virtual time."""

    def __init__(self, server: ApiServer, url: str, settings: KubeSettings) -> None:
        super().__init__(url, "admin", "", settings)
        self._server = server

    @classmethod
    async def start(cls, folder: Path, release: Release | None = None) -> "SimulatedServer":
        """A new server, by default of the newest release."""
        server = ApiServer(VirtualClock(running_virtual_loop()), release=release)
        url = await server.start()
        return cls(server, url, KubeSettings(kubeconfig=server.kubeconfig(folder / "kubeconfig")))

    async def close(self) -> None:
        """Close the connections and stop the server."""
        await super().close()
        self._server.stop()

    async def grant(self, user: str, rules: Sequence[Object]) -> None:
        """See ContractServer."""
        self._server.access.users[user] = User(user, rules)

    async def compact(self) -> None:
        """See ContractServer."""
        self._server.compact()

    async def deny(self, label: str, reason: str) -> None:
        """See ContractServer."""

        def admission(request: ApiRequest, before: Object | None, thing: Object | None) -> None:
            labels = (thing or {}).get("metadata", {}).get("labels") or {}
            if request.verb == "create" and request.plural == "resourceclaims" and label in labels:
                raise policy_denial(request, label, label, "no such label", reason)

        self._server.admission.append(admission)


class RealServer(ContractServer):
    """The API server of a control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        access = read_kubeconfig(plane.kubeconfig_for(ADMIN))
        super().__init__(
            access.server, access.token, access.authority, KubeSettings(kubeconfig=plane.kubeconfig_for(ADMIN))
        )
        self._plane = plane

    async def grant(self, user: str, rules: Sequence[Object]) -> None:
        """See ContractServer."""
        binding = objects.role_binding(user, user, objects.user(user))
        for path, thing in (("clusterroles", objects.role(user, *rules)), ("clusterrolebindings", binding)):
            made = await self.ask("POST", f"{RBAC}/{path}", thing)
            assert made.code == 201, made
        rule = next(rule for rule in rules if "resources" in rule)
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][0],
            "name": (rule.get("resourceNames") or [""])[0],
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}

        async def in_force() -> bool:
            body = {**review, "spec": {"user": user, "resourceAttributes": attributes}}
            asked = await self.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
            return bool(asked.body["status"]["allowed"])

        await wait_for(in_force, _EFFECT_SECONDS, f"rights of {user}")

    async def compact(self) -> None:
        """See ContractServer."""
        async with aiohttp.ClientSession(base_url=self._plane.layout.etcd_url) as etcd:
            at = {"key": base64.b64encode(b"/").decode()}
            async with etcd.post("/v3/kv/range", json=at) as answer:
                revision = (await answer.json())["header"]["revision"]
            async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
                assert answer.status == 200, await answer.text()
        # A server that has run for a while has old versions in its caches.
        await self._plane.restart_apiserver()

    async def deny(self, label: str, reason: str) -> None:
        """See ContractServer."""
        kind = {"apiVersion": "admissionregistration.k8s.io/v1"}
        rules = [
            {
                "apiGroups": ["resource.k8s.io"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["resourceclaims"],
            }
        ]
        expression = f"!has(object.metadata.labels) || !('{label}' in object.metadata.labels)"
        policy = {
            **kind,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": label},
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": expression, "message": "no such label", "reason": reason}],
            },
        }
        binding = {
            **kind,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": label},
            "spec": {"policyName": label, "validationActions": ["Deny"]},
        }
        for path, thing in (("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)):
            made = await self.ask("POST", f"{POLICIES}/{path}", thing)
            assert made.code == 201, made
        probe: dict[str, Any] = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "probe", "labels": {label: ""}},
            "spec": {},
        }

        async def in_force() -> bool:
            return (await self.ask("POST", self.claims(), probe, dryRun="All")).code in (403, 422)

        await wait_for(in_force, _EFFECT_SECONDS, f"policy {label}")
