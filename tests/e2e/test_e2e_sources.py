"""Every way in which a kubeconfig names a cluster and an account, on a real API server with TLS."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
from dra_extender.kube.client.credentials import ServiceAccount, find_credentials
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery.discovery import Discovery
from dra_extender.runtime.clock import SystemClock

from tests.controlplane import objects
from tests.controlplane.cluster import ADMIN, ControlPlane
from tests.controlplane.kubeconfig import read_kubeconfig
from tests.controlplane.planes import DEFAULTS
from tests.controlplane.plugin import ControlPlaneFactory
from tests.controlplane.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
)
from tests.support.e2e.command import kubectl_dra
from tests.support.e2e.service_rights import may

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 60.0
SPACE: Final = "ml"
VIEWER: Final = "viewer"
TENANT: Final = "tenant"
Json = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(control_plane: ControlPlaneFactory) -> ControlPlane:
    """Two nodes, one free GPU that is too small, and a pod that waits for a larger one; a viewer, and a tenant of one namespace."""
    plane = await control_plane(DEFAULTS)
    api = plane.api
    await api.create(NAMESPACES, objects.namespace(SPACE))
    for node in ("n1", "n2"):
        await api.create(NODES, objects.node(node))
    await api.create(DEVICE_CLASSES, objects.device_class("gpu"))
    small = objects.device("gpu-0", capacity={"memory": "40Gi"})
    await api.create(RESOURCE_SLICES, objects.resource_slice("s1", node="n1", devices=[small]))
    large = f'device.capacity["{objects.DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    claim = objects.resource_claim("large", SPACE, objects.request("gpu", "gpu", large))
    await api.create(RESOURCE_CLAIMS, claim)
    await api.create(PODS, objects.pod("train", SPACE, claims={"gpu": "large"}))
    plane.kubectl("apply", "-f", str(ROOT / "deploy" / "base" / "viewer-role.yaml"))
    await api.create(CLUSTER_ROLE_BINDINGS, binding("viewers", "dra-viewer", "User", VIEWER))
    await api.create(ROLE_BINDINGS, {**binding("tenants", "view", "User", TENANT), "metadata": place("tenants")})
    await may_list(plane, VIEWER, "nodes")
    await may_list(plane, TENANT, "pods")
    return plane


async def may_list(plane: ControlPlane, user: str, kind: str) -> None:
    """Waits until the API server has loaded the user's role; controllers put that of the tenant together."""
    attributes = {"verb": "list", "resource": kind, "namespace": SPACE if kind == "pods" else ""}

    async def loaded() -> bool:
        return await may(plane.api, {"user": user, "resourceAttributes": attributes})

    await plane.api.wait_for(loaded, SECONDS, f"{user} may list {kind}")


def place(name: str) -> Json:
    return {"name": name, "namespace": SPACE}


def binding(name: str, role: str, kind: str, subject: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding" if role == "dra-viewer" else "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    }


class Config:
    """A kubeconfig with one context, as a dictionary that a test changes before it is written."""

    def __init__(self, plane: ControlPlane, user: str = VIEWER, name: str = "here") -> None:
        access = read_kubeconfig(plane.kubeconfig_for(user))
        self.token = access.token
        authority = base64.b64encode(access.authority.encode()).decode()
        self.cluster: Json = {"server": access.server, "certificate-authority-data": authority}
        self.user: Json = {"token": access.token}
        self.context: Json = {"cluster": name, "user": name, "namespace": SPACE}
        self.name = name

    def write(self, folder: Path, **fields: Any) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": self.cluster}],
            "users": [{"name": self.name, "user": self.user}],
            "contexts": [{"name": self.name, "context": self.context}],
            "current-context": self.name,
            **fields,
        }
        file = folder / f"{self.name}.yaml"
        file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        return str(file)


async def asked(*options: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """`kubectl-dra why train` in a process of its own."""
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    }
    return await kubectl_dra("why", "train", "-o", "json", *options, environment={**inherited, **(environment or {})})


async def answered(*options: str, environment: dict[str, str] | None = None) -> Json:
    """The report, which must say that the memory does not suffice."""
    status, out, err = await asked(*options, environment=environment)
    assert (status, err) == (0, "")
    report: Json = msgspec.json.decode(out)
    assert report["pod"] == f"{SPACE}/train"
    return report


async def refused(*options: str, environment: dict[str, str] | None = None) -> str:
    status, out, err = await asked(*options, environment=environment)
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    return err


def whole(report: Json) -> bool:
    """Whether everything was read, and the feature gates are known."""
    origin = report["origin"]
    states = {each["state"] for each in origin["gates"]}
    return not any(each.get("served", True) for each in origin.get("missing", ())) and states <= {"on", "off"}


async def test_role_dra_viewer_suffices_for_the_whole_answer(plane: ControlPlane, tmp_path: Path) -> None:
    report = await answered("--kubeconfig", Config(plane).write(tmp_path))
    assert whole(report)
    assert report["nodes"] == 2
    assert report["origin"]["source"].endswith("here.yaml, context here")
    assert report["origin"]["release"].startswith("v1.37")
    assert {"code": "NO_MATCH", "nodes": 1}.items() <= report["branches"][0]["reasons"][0].items()


async def test_role_dra_viewer_suffices_for_every_command_and_may_write_nothing(
    plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = Config(plane).write(tmp_path)
    for command in (("devices",), ("audit", "--again-after", "0"), ("snapshot", "-o", str(tmp_path / "s.tar.gz"))):
        status, out, err = await kubectl_dra(*command, "--kubeconfig", kubeconfig)
        assert (status in (0, 1), err) == (True, "")
        assert "forbidden" not in out
    for verb in ("create", "update", "patch", "delete"):
        for kind in ("pods", "resourceclaims.resource.k8s.io", "nodes"):
            asks = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": VIEWER,
                    "resourceAttributes": {
                        "verb": verb,
                        "resource": kind.partition(".")[0],
                        "group": kind.partition(".")[2],
                    },
                },
            }
            answer = plane.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(asks))
            assert not json.loads(answer)["status"].get("allowed")


async def test_tenant_with_the_role_view_in_one_namespace_gets_a_partial_answer_that_names_what_is_missing(
    plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = Config(plane, TENANT).write(tmp_path)
    report = await answered("--kubeconfig", kubeconfig)
    missing = {each["kind"]: each for each in report["origin"]["missing"]}
    assert {"nodes", "resourceslices", "deviceclasses", "pods"} <= set(missing)
    assert missing["pods"]["namespace"] == SPACE
    assert all("403 Forbidden" in each["reason"] for each in missing.values())
    assert {each["state"] for each in report["origin"]["gates"]} & {"unknown"}


async def test_of_several_files_the_first_counts_and_contexts_of_all_can_be_chosen(
    plane: ControlPlane, tmp_path: Path
) -> None:
    here = Config(plane).write(tmp_path)
    elsewhere = Config(plane, name="elsewhere")
    elsewhere.cluster["server"] = "https://127.0.0.1:1"
    files = {"KUBECONFIG": os.pathsep.join((here, elsewhere.write(tmp_path), str(tmp_path / "absent")))}
    report = await answered(environment=files)
    assert report["origin"]["source"].endswith(", context here")
    assert "127.0.0.1:1" in await refused("--context", "elsewhere", environment=files)
    assert "there are: elsewhere, here" in await refused("--context", "nowhere", environment=files)
    # Users and contexts may be in different files.
    alone = Config(plane, name="alone")
    first = alone.write(tmp_path, users=None)
    alone.name = "login"
    second = alone.write(
        tmp_path, users=[{"name": "alone", "user": {"token": alone.token}}], clusters=None, contexts=None
    )
    await answered(environment={"KUBECONFIG": os.pathsep.join((first, second))})


async def test_login_program_gives_the_token_and_its_failure_is_said(plane: ControlPlane, tmp_path: Path) -> None:
    config = Config(plane)
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": config.token}})
    program = tmp_path / "login.py"
    program.write_text(f"import os\nassert os.environ['TENANT'] == 'ml'\nprint({answer!r})\n")
    config.user = {
        "exec": {
            "apiVersion": version,
            "command": sys.executable,
            "args": [str(program)],
            "env": [{"name": "TENANT", "value": "ml"}],
            "interactiveMode": "Never",
        }
    }
    assert whole(await answered("--kubeconfig", config.write(tmp_path)))
    program.write_text("import sys\nsys.exit('please log in first')\n")
    said = await refused("--kubeconfig", config.write(tmp_path))
    assert "its login program gave no credentials" in said
    assert "please log in first" in said


async def test_token_file_is_found_from_the_folder_of_the_kubeconfig(plane: ControlPlane, tmp_path: Path) -> None:
    config = Config(plane)
    (tmp_path / "token").write_text(f"{config.token}\n")
    config.user = {"tokenFile": "token"}
    assert whole(await answered("--kubeconfig", config.write(tmp_path)))


async def test_another_user_is_asked_for_by_option_or_by_the_kubeconfig(plane: ControlPlane, tmp_path: Path) -> None:
    config = Config(plane, ADMIN)
    plain = config.write(tmp_path)
    report = await answered("--kubeconfig", plain, "--as", TENANT)
    assert not whole(report)
    assert report["origin"]["source"].endswith(f", as {TENANT}")
    assert whole(await answered("--kubeconfig", plain, "--as", "somebody", "--as-group", "system:masters"))
    config.user |= {"as": "nobody", "as-groups": ["a", "system:masters"]}
    report = await answered("--kubeconfig", config.write(tmp_path))
    assert whole(report)
    assert report["origin"]["source"].endswith(", as nobody in a, system:masters")
    config.user |= {"as": TENANT, "as-groups": []}
    assert not whole(await answered("--kubeconfig", config.write(tmp_path)))


async def test_name_of_the_server_is_checked_against_its_certificate(plane: ControlPlane, tmp_path: Path) -> None:
    config = Config(plane)
    config.cluster["tls-server-name"] = "kubernetes.default.svc"
    assert whole(await answered("--kubeconfig", config.write(tmp_path)))
    config.cluster["tls-server-name"] = "elsewhere.example.com"
    assert "elsewhere.example.com" in await refused("--kubeconfig", config.write(tmp_path))
    del config.cluster["tls-server-name"]
    del config.cluster["certificate-authority-data"]
    assert "certificate is not trusted" in await refused("--kubeconfig", config.write(tmp_path))


class Proxy:
    """An HTTP proxy that knows CONNECT alone."""

    def __init__(self) -> None:
        self.url = ""
        self.connected: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        assert method == "CONNECT"
        self.connected.append(target)
        host, port = target.rsplit(":", 1)
        back_reader, back_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._copy(reader, back_writer), self._copy(back_reader, writer))

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def test_proxy_of_the_kubeconfig_is_used(plane: ControlPlane, tmp_path: Path) -> None:
    config = Config(plane)
    async with Proxy().serving() as proxy:
        config.cluster["proxy-url"] = proxy.url
        assert whole(await answered("--kubeconfig", config.write(tmp_path)))
        config.cluster["tls-server-name"] = "kubernetes.default.svc"
        assert whole(await answered("--kubeconfig", config.write(tmp_path)))
    assert set(proxy.connected) == {plane.server.removeprefix("https://")}
    config.cluster["proxy-url"] = "socks5://127.0.0.1:1"
    assert "no SOCKS proxy can be used here" in await refused("--kubeconfig", config.write(tmp_path))


async def test_pod_asks_with_its_service_account(plane: ControlPlane, tmp_path: Path) -> None:
    """The client's own function, for the folder of the token is fixed in a pod."""
    access = read_kubeconfig(plane.kubeconfig_for(VIEWER))
    (tmp_path / "token").write_text(access.token)
    (tmp_path / "ca.crt").write_text(access.authority)
    (tmp_path / "namespace").write_text(SPACE)
    host, port = plane.server.removeprefix("https://").split(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    account = ServiceAccount(tmp_path / "token", tmp_path / "ca.crt")
    settings, clock = KubeSettings(), SystemClock()
    found = await find_credentials(settings, clock, environ=environment, home=tmp_path, account=account)
    assert found.identity.namespace == SPACE
    transport = ApiTransport(settings, clock, NullObserver())
    transport.connect(found)
    try:
        assert (await Discovery(transport, settings).facts()).minor == 37
    finally:
        await transport.close()
