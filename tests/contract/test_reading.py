"""Discovery, lists and watches."""

import msgspec
import pytest
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.discovery import Support

from tests.contract.contract_server import MERGE, ContractServer, Object
from tests.controlplane import objects

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def make_claims(server: ContractServer, *names: str) -> list[Object]:
    claims = []
    for name in names:
        claim = objects.resource_claim(name, server.namespace, objects.request("gpu", "gpu"))
        made = await server.ask("POST", server.claims(), claim)
        assert made.code == 201, made
        claims.append(made.body)
    return claims


async def test_service_discovers_the_release_and_what_it_serves(server: ContractServer) -> None:
    facts = await server.facts()
    assert facts.minor == 37
    assert facts.pod_groups == ResourceKind("podgroups", "scheduling.k8s.io/v1beta1")
    assert facts.taint_rules == ResourceKind("devicetaintrules", "resource.k8s.io/v1", namespaced=False)
    assert set(facts.fields.values()) == {Support.KEPT}
    assert facts.allocation_groups is Support.DROPPED


@pytest.mark.parametrize(
    "path", ["/apis/none.example.com", "/apis/resource.k8s.io/v9", "/apis/resource.k8s.io/v1/things"]
)
async def test_what_is_not_served_is_not_found(server: ContractServer, path: str) -> None:
    assert (await server.ask("GET", path)).code == 404


@pytest.mark.parametrize(
    ("group_version", "plural", "kind", "namespaced"),
    [
        ("v1", "pods", "Pod", True),
        ("v1", "nodes", "Node", False),
        ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", True),
        ("resource.k8s.io/v1", "resourceslices", "ResourceSlice", False),
        ("coordination.k8s.io/v1", "leases", "Lease", True),
        ("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", True),
        ("events.k8s.io/v1", "events", "Event", True),
    ],
)
async def test_resource_list_names_kinds_and_their_scope(
    server: ContractServer, group_version: str, plural: str, kind: str, namespaced: bool
) -> None:
    root = "apis" if "/" in group_version else "api"
    listed = (await server.ask("GET", f"/{root}/{group_version}")).body
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", group_version)
    (found,) = [each for each in listed["resources"] if each["name"] == plural]
    assert (found["kind"], found["namespaced"]) == (kind, namespaced)


async def test_token_of_nobody_is_refused(server: ContractServer) -> None:
    answer = await server.ask("GET", server.claims(), headers={"Authorization": "Bearer of-nobody"})
    assert answer.refusal == (401, "Unauthorized")


async def test_list_has_the_objects_by_name_and_its_kind_once(server: ContractServer) -> None:
    await make_claims(server, "b", "c", "a")
    listed = await server.ask("GET", server.claims())
    assert listed.names == ["a", "b", "c"]
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("ResourceClaimList", "resource.k8s.io/v1")
    assert all(not {"kind", "apiVersion"} & item.keys() for item in listed.body["items"])
    assert listed.version >= max(int(item["metadata"]["resourceVersion"]) for item in listed.body["items"])


async def test_list_of_nothing_has_items_and_a_version(server: ContractServer) -> None:
    listed = await server.ask("GET", server.claims())
    assert (listed.code, listed.body["items"]) == (200, [])
    assert listed.version > 0


async def test_pages_show_one_state_in_one_version(server: ContractServer) -> None:
    await make_claims(server, "a", "b", "c", "d", "e")
    first = await server.ask("GET", server.claims(), limit="2")
    assert first.body["metadata"]["remainingItemCount"] == 3
    await make_claims(server, "aa", "f")
    assert (await server.ask("DELETE", server.claims("d"))).code == 200
    await server.ask("PATCH", server.claims("c"), {"metadata": {"labels": {"new": "1"}}}, media=MERGE)
    pages, token = [first], first.body["metadata"]["continue"]
    while token:
        pages.append(await server.ask("GET", server.claims(), **{"limit": "2", "continue": token}))
        token = pages[-1].body["metadata"].get("continue")
    assert [page.names for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page.version for page in pages}) == 1
    assert "labels" not in pages[1].body["items"][0]["metadata"]
    assert (await server.ask("GET", server.claims())).names == ["a", "aa", "b", "c", "e", "f"]


async def test_page_of_a_version_that_is_forgotten_is_gone(server: ContractServer) -> None:
    await make_claims(server, "a", "b", "c")
    first = await server.ask("GET", server.claims(), limit="1")
    await make_claims(server, "d")
    await server.compact()
    await make_claims(server, "e")
    again = await server.ask("GET", server.claims(), **{"limit": "1", "continue": first.body["metadata"]["continue"]})
    assert again.refusal == (410, "Expired")


async def test_list_is_not_older_than_the_version_asked_for(server: ContractServer) -> None:
    (claim,) = await make_claims(server, "a")
    version = claim["metadata"]["resourceVersion"]
    listed = await server.ask("GET", server.claims(), resourceVersion=version)
    assert listed.names == ["a"]
    assert listed.version >= int(version)


async def test_list_of_a_version_that_is_not_reached_times_out_with_a_cause(server: ContractServer) -> None:
    (claim,) = await make_claims(server, "a")
    far = str(int(claim["metadata"]["resourceVersion"]) + 1_000_000)
    answer = await server.ask("GET", server.claims(), resourceVersion=far)
    assert answer.refusal == (504, "Timeout")
    assert [cause["reason"] for cause in answer.body["details"]["causes"]] == ["ResourceVersionTooLarge"]


async def test_list_selects_by_labels_and_fields(server: ContractServer) -> None:
    await make_claims(server, "a", "b")
    await server.ask("PATCH", server.claims("b"), {"metadata": {"labels": {"x": "1"}}}, media=MERGE)
    for selector, names in (("x=1", ["b"]), ("x!=1", ["a"]), ("!x", ["a"]), ("x in (1,2)", ["b"]), ("x", ["b"])):
        assert (await server.ask("GET", server.claims(), labelSelector=selector)).names == names, selector
    assert (await server.ask("GET", server.claims(), fieldSelector="metadata.name=a")).names == ["a"]
    refused = await server.ask("GET", server.claims(), fieldSelector="spec.none=a")
    assert refused.refusal == (400, "BadRequest")


async def test_watch_tells_changes_after_a_version_in_their_order(server: ContractServer) -> None:
    (before,) = await make_claims(server, "before")
    (claim, _) = await make_claims(server, "a", "b")
    await server.ask("PATCH", server.claims("a"), {"metadata": {"labels": {"x": "1"}}}, media=MERGE)
    await server.ask("DELETE", server.claims("a"))
    events = await server.events(server.claims(), count=4, resourceVersion=before["metadata"]["resourceVersion"])
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[0]["object"] == claim
    assert (events[0]["object"]["kind"], events[0]["object"]["apiVersion"]) == ("ResourceClaim", "resource.k8s.io/v1")
    assert events[3]["object"]["metadata"]["labels"] == {"x": "1"}
    again = await server.events(server.claims(), count=2, resourceVersion=str(versions[1]))
    assert again == events[2:]


@pytest.mark.parametrize("version", [None, "0"])
async def test_watch_from_any_version_begins_with_what_exists(server: ContractServer, version: str | None) -> None:
    await make_claims(server, "a", "b")
    query = {} if version is None else {"resourceVersion": version}
    async with server.watch(server.claims(), **query) as answer:
        first = [msgspec.json.decode(await answer.content.readline()) for _ in range(2)]
        await make_claims(server, "c")
        third = msgspec.json.decode(await answer.content.readline())
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in (*first, third)] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
    ]


async def test_watch_of_a_version_that_is_forgotten_says_so_in_its_first_event(server: ContractServer) -> None:
    await make_claims(server, "a")
    await server.compact()
    (event,) = await server.events(server.claims(), resourceVersion="1")
    assert (event["type"], event["object"]["kind"]) == ("ERROR", "Status")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_watch_of_a_version_that_is_not_reached_is_quiet(server: ContractServer) -> None:
    (claim,) = await make_claims(server, "a")
    far = str(int(claim["metadata"]["resourceVersion"]) + 1_000_000)
    async with server.watch(server.claims(), resourceVersion=far, timeoutSeconds="2") as answer:
        await make_claims(server, "b")
        assert await answer.content.read() == b""


async def test_watch_ends_in_time_with_a_bookmark_if_the_kind_has_changed(server: ContractServer) -> None:
    """A bookmark comes only if it is allowed and the kind has changed since the watch began, selected or not."""
    (claim,) = await make_claims(server, "a")
    query = {
        "resourceVersion": claim["metadata"]["resourceVersion"],
        "timeoutSeconds": "5",
        "fieldSelector": "metadata.name=none",
    }
    assert await server.events(server.claims(), allowWatchBookmarks="true", **query) == []
    async with (
        server.watch(server.claims(), allowWatchBookmarks="true", **query) as allowed,
        server.watch(server.claims(), **query) as forbidden,
    ):
        (changed,) = await make_claims(server, "b")
        bookmark = msgspec.json.decode(await allowed.content.readline())
        rest = await allowed.content.read()
        assert await forbidden.content.read() == b""
    assert bookmark["type"] == "BOOKMARK"
    assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("ResourceClaim", "resource.k8s.io/v1")
    assert bookmark["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    assert "name" not in bookmark["object"]["metadata"]
    assert {msgspec.json.decode(line)["type"] for line in rest.splitlines()} <= {"BOOKMARK"}


async def test_watch_can_stand_for_a_list(server: ContractServer) -> None:
    """With `sendInitialEvents`, a bookmark says when all that exists was told."""
    await make_claims(server, "a")
    events = await server.events(
        server.claims(),
        count=2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_object_that_a_selector_no_longer_selects_is_told_as_deleted(server: ContractServer) -> None:
    (claim,) = await make_claims(server, "a")
    for labels in ({"x": "1"}, {"y": "1"}, {"x": "2"}, {"x": None}):
        await server.ask("PATCH", server.claims("a"), {"metadata": {"labels": labels}}, media=MERGE)
    events = await server.events(
        server.claims(), count=4, resourceVersion=claim["metadata"]["resourceVersion"], labelSelector="x"
    )
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[3]["object"]["metadata"]["labels"] == {"x": "2", "y": "1"}


async def test_watch_of_pods_selects_by_node(server: ContractServer) -> None:
    made = await server.ask("POST", server.pods(), objects.pod("pod", server.namespace))
    assert made.code == 201
    binding = objects.binding("pod", server.namespace, "node")
    assert (await server.ask("POST", server.pods("pod", "binding"), binding)).code == 201
    version = made.body["metadata"]["resourceVersion"]
    (event,) = await server.events(server.pods(), count=1, resourceVersion=version, fieldSelector="spec.nodeName=node")
    assert (event["type"], event["object"]["spec"]["nodeName"]) == ("ADDED", "node")


async def test_write_without_effect_is_no_event_and_no_version(server: ContractServer) -> None:
    (claim,) = await make_claims(server, "a")
    for change in ({"metadata": {"labels": {"x": "1"}}}, {"metadata": {"labels": {"x": "1"}}}):
        changed = await server.ask("PATCH", server.claims("a"), change, media=MERGE)
    written = await server.ask("PUT", server.claims("a"), changed.body)
    assert written.version == changed.version
    await make_claims(server, "b")
    events = await server.events(server.claims(), count=2, resourceVersion=claim["metadata"]["resourceVersion"])
    assert [event["object"]["metadata"]["name"] for event in events] == ["a", "b"]
