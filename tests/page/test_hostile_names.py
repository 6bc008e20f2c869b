"""Names and messages of tenants: whatever they have in them, a page shows it as text."""

import re
from html.parser import HTMLParser
from typing import Final
from urllib.parse import quote

import pytest

from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    pod_group,
    request,
    resource_slice,
)
from tests.page.conftest import Open
from tests.support.inspection.made_cluster import MadeCluster

TAG: Final = "<script>alert(1)</script>"
ATTRIBUTE: Final = "\"'><img/src=x/onerror=alert(1)>"
ENTITY: Final = "&lt;b&gt;&#x202e;"
CONTROL: Final = "a\x00b\x07c\x1b[31md\x7fe\x85f\u2028g"
DIRECTION: Final = "\u202emoc.elpmaxe\u202c\u2066x\u2069\u200f\u200b\ufeff"
TEMPLATE: Final = "{{7*7}}{%raw%}"
HOSTILE: Final = (TAG, ATTRIBUTE, ENTITY, CONTROL, DIRECTION, TEMPLATE)
VIEWS: Final = (
    *("overview", "pending", "pending?pod=ml/late{}", "node", "node?name=n1", "waiting", "health"),
    *("map", "map?scale=nodes&sort=free&group=driver", "map?group=label:rack{0}&class=gpu{0}"),
)
ADDRESSES: Final = (
    *("{}", "pending?pod={}", "pending?pod=ml/{}", "pending?round={}"),
    *("node?name={}", "map?driver={}", "map?nodes={}", "map?page={}", "map?class={}", "map?group={}", "map?state={}"),
)
_NOT_SHOWN: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Tags(HTMLParser):
    """The tags and attributes of a page, in order, without their values."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def cluster(text: str) -> MadeCluster:
    """A cluster in which every name that somebody chooses has this text in it."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    for node in made.objects["nodes"]:
        node["metadata"]["labels"] = {f"rack{text}": f"r{text}"}
    made.add(device_class(f"gpu{text}"))
    made.partitions(
        "n1",
        [counter_set(f"set{text}", **{f"sm{text}": "98"})],
        [
            device(
                f"mig{text}",
                consumes=[consumption(f"set{text}", groups=[f"g{text}"], **{f"sm{text}": "42"})],
                taints=[{"key": f"k{text}", "value": text, "effect": "NoSchedule"}],
            ),
        ],
    )
    made.add(resource_slice("other", pool=f"pool{text}", driver=f"driver{text}", node="n1", devices=[device("d")]))
    made.running(f"train{text}", "n1", f"mig{text}", request("gpu", f"gpu{text}"))
    made.pod(f"late{text}", request("gpu", f"gpu{text}"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"said {text}"}
    made.objects["pods"][-1]["status"] = {"phase": "Pending", "conditions": [condition]}
    _awaited(made, text)
    made.add(pod_group(f"band{text}", "ml", min_count=1))
    made.pod(f"member{text}", request("gpu", f"gpu{text}"), schedulingGroup={"podGroupName": f"band{text}"})
    return made


def _awaited(made: MadeCluster, text: str) -> None:
    """A pod whose device is not ready, and says why."""
    made.gpus("n1", device(f"fabric{text}", bindingConditions=["Attached"]), driver="fabric.example.com")
    made.running(f"soon{text}", "n1", f"fabric{text}", request("gpu", "gpu"), driver="fabric.example.com")
    made.objects["pods"][-1]["spec"]["nodeName"] = ""
    status = made.objects["resourceclaims"][-1]["status"]
    status["allocation"]["devices"]["results"][0]["bindingConditions"] = ["Attached"]
    status["allocation"]["devices"]["results"][0]["bindingFailureConditions"] = [f"Failed{text}"]
    status["allocation"]["allocationTimestamp"] = "2026-11-25T09:46:00Z"
    failed = {"type": f"Failed{text}", "status": "True", "reason": "x", "message": f"said {text}"}
    result = {"driver": "fabric.example.com", "pool": "n1", "device": f"fabric{text}"}
    status["devices"] = [{**result, "conditions": [failed]}]


@pytest.mark.parametrize("text", HOSTILE)
async def test_page_has_the_same_tags_as_with_harmless_names_and_characters_without_a_look_are_escapes(
    open_page: Open, text: str
) -> None:
    """In each view, and in the tree of a pod."""
    harmless, hostile = open_page(cluster("x")), open_page(cluster(text))
    for view in VIEWS:
        expected, shown = await harmless.get(view.format("x")), await hostile.get(view.format(quote(text, safe="")))
        assert (expected.status_code, shown.status_code) == (200, 200)
        assert Tags(shown.text).found == Tags(expected.text).found
        assert _NOT_SHOWN.search(shown.text) is None
        if text in (CONTROL, DIRECTION) and view != "node":
            assert "\\u202e" in shown.text or "\\u001b" in shown.text


async def test_entities_in_names_are_not_read_as_entities(open_page: Open) -> None:
    assert f"mig{ENTITY}" in Tags((await open_page(cluster(ENTITY)).get("node?name=n1")).text).text


async def test_what_an_address_says_is_shown_as_text(open_page: Open) -> None:
    client = open_page(cluster("x"))
    for path in ADDRESSES:
        harmless = Tags((await client.get(path.format("y"))).text).found
        for text in HOSTILE:
            shown = (await client.get(path.format(quote(text, safe="")))).text
            assert Tags(shown).found == harmless, (path, text)
            assert _NOT_SHOWN.search(shown) is None, (path, text)
