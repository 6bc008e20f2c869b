"""What the views show, and that it is what the commands answer."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import httpx
import msgspec
import pytest
from dra_extender.inspection.audit.report import audit_report
from dra_extender.inspection.objects import MissingKind
from dra_extender.inspection.running_cluster import ExtenderView
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why
from dra_extender.model.allocation import AllocationResult, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.model.device import CounterConsumption
from dra_extender.page import states
from dra_extender.page.application import PageApplication
from dra_extender.page.devices_view import MOST_DEVICES
from dra_extender.page.health import MOST_FINDINGS, MOST_SCHEDULERS
from dra_extender.page.map_view import DEVICE_CELLS, MOST_SQUARES, shortening
from dra_extender.page.overview import MOST_KINDS, Line, overview
from dra_extender.page.rendering import Link
from dra_extender.page.states import KEPT_SECONDS, MOST_POINTS, History, Point, Reports, States
from dra_extender.page.views import CommandLines
from dra_extender.page.waiting_view import ROWS, STEP_SECONDS, linked_tree, pending_pods
from dra_extender.scheduling.recent_decisions import Outcome, RecentDecisions

from tests.controlplane.objects import (
    DRIVER,
    consumption,
    counter_set,
    device,
    device_class,
    on_node,
    pod_group,
    request,
    resource_slice,
)
from tests.page.conftest import TOKEN, Open
from tests.support.inspection.made_cluster import NOW, MadeCluster, one_gpu_held

VIEWS = ("overview", "pending", "pending?pod=ml/late", "map", "node", "node?name=n1", "waiting", "health")


class Text(HTMLParser):
    """The text of a page without its tags, and the tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

        if tag in ("td", "th", "li", "div", "dt", "dd"):
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.parts))


async def shown(client: httpx.AsyncClient, path: str, status: int = 200) -> Text:
    response = await client.get(path)
    assert response.status_code == status, response.text[:500]
    return Text(response.text)


async def test_pods_that_wait_are_grouped_by_cause_with_the_oldest_and_what_would_help(
    open_page: Open, made: MadeCluster
) -> None:
    made.pod("later", request("gpu", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    page = await shown(open_page(made), "pending")
    assert "2 pods wait on 2 nodes." in page.text
    assert "kubectl dra why --snapshot x.tar.gz" in page.text
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and "pod=" in str(attrs.get("href"))]
    assert links == [f"/{TOKEN}/pending?pod=ml%2Flate#pod", f"/{TOKEN}/pending?pod=ml%2Flater#pod"]
    assert "1 other pod" in page.text


async def test_step_that_ends_a_pod_has_its_price(open_page: Open) -> None:
    page = await shown(open_page(one_gpu_held()), "pending")
    assert "end ml/old: ok on n1 ml/old: no owner, priority 0, 12m old" in page.text


async def test_step_that_helps_a_gang_says_so_and_counts_the_pods_beyond_the_first_that_it_ends(
    open_page: Open,
) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", *(device(f"gpu-{number}") for number in range(5)))
    for number in range(5):
        made.running(f"old-{number}", "n1", f"gpu-{number}", request("gpu", "gpu"))
    made.add(pod_group("band", "ml", min_count=5))
    for number in range(5):
        made.pod(f"band-{number}", request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    page = await shown(open_page(made), "pending")
    assert "ml/old-4: ok, the gang fits ml/old-0: no owner, priority 0, 12m old" in page.text
    assert "and 1 more pods" in page.text


async def test_row_opens_the_tree_that_the_command_prints(open_page: Open, made: MadeCluster) -> None:
    page = await shown(open_page(made), "pending?pod=ml/late")
    lines = tree(why(made.view(), "ml", "late"), 100)
    assert re.sub(r"\s+", " ", lines).strip() in page.text
    assert "kubectl dra why late --namespace ml --snapshot x.tar.gz" in page.text


async def test_tree_leads_to_the_nodes_devices_and_pods_that_it_names(open_page: Open) -> None:
    page = await shown(open_page(one_gpu_held()), "pending?pod=ml/train")
    links = {str(attrs["href"]).removeprefix(f"/{TOKEN}/") for tag, attrs in page.tags if tag == "a"}
    assert links >= {"node?name=n1", "node?name=n1#gpu.example.com/n1/gpu-0", "pending?pod=ml%2Fold#pod"}


def test_name_within_a_longer_one_is_no_link() -> None:
    made = one_gpu_held()
    made.nodes("gpu")
    made.gpus("gpu", device("gpu-1", taints=[{"key": "k", "effect": "NoSchedule"}]))
    lines = linked_tree(why(made.view(), "ml", "train"))
    linked = [part.text for line in lines for part in line if isinstance(part, Link)]
    assert {"n1/gpu-0", "gpu/gpu-1", "ml/old"} <= set(linked)
    assert "".join(part if isinstance(part, str) else part.text for line in lines for part in [*line, "\n"]) == tree(
        why(made.view(), "ml", "train"), 100
    )


async def test_pod_that_does_not_wait_has_its_tree_all_the_same(open_page: Open, made: MadeCluster) -> None:
    assert "is bound to node n1" in (await shown(open_page(made), "pending?pod=ml/train")).text


async def test_waiting_has_the_conditions_of_allocated_devices_with_clocks(open_page: Open, made: MadeCluster) -> None:
    made.gpus("n2", device("gpu-7", bindingConditions=["Attached"], bindingFailureConditions=["Failed"]))
    made.running("soon", "n2", "gpu-7", request("gpu", "gpu"))
    made.objects["pods"][-1]["spec"]["nodeName"] = ""
    allocation = made.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0]["bindingConditions"] = ["Attached"]
    allocation["allocationTimestamp"] = "2026-11-25T09:46:00Z"
    page = await shown(open_page(made), "waiting")
    assert (
        "ml/soon gpu gpu.example.com/n2/gpu-7 Attached pending 40s 9m if the binding timeout is 600s, the default"
        in (page.text)
    )
    clocks = [attrs for tag, attrs in page.tags if tag == "time" and attrs.get("class") == "clock"]
    assert [float(each.get("data-since") or each["data-until"] or 0) - NOW for each in clocks] == [-40, 560]


async def test_waiting_has_gangs_with_their_members(open_page: Open, made: MadeCluster) -> None:
    made.add(pod_group("band", "ml", min_count=3))
    for number in range(3):
        made.pod(f"band-{number}", request("gpu", "gpu"), schedulingGroup={"podGroupName": "band"})
    made.objects["pods"][-1]["spec"]["nodeName"] = "n1"
    page = await shown(open_page(made), "waiting")
    assert "ml/band 3 1 2 pods, the first is ml/band-0 ml/band-0 ml/band-1" in page.text
    assert "of 3 placed" in page.text


async def test_health_has_the_findings_of_the_audit_and_who_allocates(open_page: Open, made: MadeCluster) -> None:
    page = await shown(open_page(made), "health")
    findings = audit_report(made.view()).findings
    assert findings
    for each in findings:
        assert each.about in page.text
        assert each.detail in page.text
    assert "0 claims allocated by dra-extender, 1 claim by another scheduler." in page.text
    assert "dra-extender-scheduler 1" in page.text
    assert "A snapshot is not watched." in page.text
    assert "kubectl dra audit --snapshot x.tar.gz" in page.text


def page_of(made: MadeCluster, view: ExtenderView) -> httpx.AsyncClient:
    page = PageApplication(States(Reports(made.view(), live=True, extender=lambda: view)), CommandLines(), TOKEN)
    return httpx.AsyncClient(transport=httpx.ASGITransport(page.asgi), base_url=f"http://127.0.0.1:8000/{TOKEN}/")


def decided(reason: str = "no devices", name: str = "late") -> ExtenderView:
    recent = RecentDecisions(lambda: NOW - 40)
    recent.note("bind", "ml", "train", Outcome.BOUND, node="n1")
    for _ in range(3):
        recent.note("filter", "ml", name, Outcome.REJECTED, nodes=2, reason=reason)
    notes = {"audit": f"two_allocators 1{reason}", name: "x"}
    return ExtenderView(
        None, decisions=recent.report(leads=True, replica="dra-extender-0", watches={"pods": 5.0}, notes=notes)
    )


async def test_health_names_an_object_that_no_check_reads_as_the_command_does(
    open_page: Open, made: MadeCluster
) -> None:
    made.objects["podgroups"] = [{"metadata": {"name": "band", "namespace": "ml", "uid": "u"}, "spec": 5}]
    page = await shown(open_page(made), "health")
    assert "Not judged: an object that no check reads: left out: " in page.text


async def test_health_has_the_recent_decisions_of_the_leader_its_watches_and_what_it_says_of_itself(
    made: MadeCluster,
) -> None:
    async with page_of(made, decided()) as client:
        text = (await shown(client, "health")).text
    assert "Replica dra-extender-0 leads, as it said 40s before this state." in text
    assert "Since the API server last answered its watches Kind Age pods 5s" in text
    assert "audit two_allocators 1no devices" in text
    newest, oldest = (
        text.index("40s ago, 3 times ml/late filter rejected 2 nodes no devices"),
        text.index("40s ago ml/train bind bound n1"),
    )
    assert newest < oldest


async def test_health_says_why_decisions_are_not_known(made: MadeCluster) -> None:
    async with page_of(made, ExtenderView(None, decisions_problem="not read: 404 <b>")) as client:
        assert "Its recent decisions: not read: 404 <b>" in (await shown(client, "health")).text


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "\x1b[31m\u202e", "{{ 7 * 7 }}"])
async def test_decision_about_a_pod_with_a_hostile_name_is_text(made: MadeCluster, hostile: str) -> None:
    pages = []
    for text in ("x", hostile):
        async with page_of(made, decided(text, text)) as client:
            pages.append(await shown(client, "health"))
    assert [tag for tag, _ in pages[0].tags] == [tag for tag, _ in pages[1].tags]
    assert not {"\x1b", "\u202e"} & set(pages[1].text)


def squares(page: Text) -> list[str]:
    """What the squares of a page say, those of nodes included."""
    return [
        str(attrs["title"])
        for _, attrs in page.tags
        if "title" in attrs and re.match("square|heat", attrs.get("class") or "")
    ]


async def test_overview_has_what_is_taken_where_whole_devices_are_left_what_waits_and_what_is_wrong(
    open_page: Open, made: MadeCluster
) -> None:
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"), device("gpu-1"), driver="other.example.com")
    made.partitions("n3", [counter_set("gpu-2", sm="98")], [device("mig-0", consumes=[consumption("gpu-2", sm="1")])])
    page = await shown(open_page(made), "overview")
    assert "driver gpu.example.com 25% of 4 1 allocated 1 unusable 2 usable" in page.text
    assert "driver other.example.com 0% of 2 2 usable" in page.text
    assert "class gpu 25% of 4 1 allocated 1 unusable 2 usable" in page.text
    assert "3 on 1 node n3 3" in page.text
    assert "1 pod waits" in page.text
    assert "oldest ml/late 12m" in page.text
    assert "1 device unusable: tainted" in page.text
    assert "1 error of the audit" in page.text
    bar = next(attrs for tag, attrs in page.tags if tag == "svg")
    assert bar["aria-label"] == "25% allocated, 25% unusable, 50% usable"
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert links >= {
        f"/{TOKEN}/{path}"
        for path in (
            "map?driver=gpu.example.com",
            "map?state=unusable&driver=gpu.example.com",
            "node?name=n3",
            "health#audit",
        )
    }


async def test_partitions_of_a_counter_set_that_is_partly_taken_are_no_whole_devices(
    open_page: Open, made: MadeCluster
) -> None:
    assert "0 on 0 nodes" in (await shown(open_page(made), "overview")).text


async def test_overview_says_what_is_not_known(open_page: Open, made: MadeCluster) -> None:
    made.missing = (
        MissingKind(kind="pods", reason="list pods: 403 Forbidden"),
        MissingKind(kind="resourceslices", reason="list resourceslices: 403 Forbidden"),
    )
    text = (await shown(open_page(made), "overview")).text
    assert text.count("no answer with a test: the account may not list") == 3
    assert "Not read: pods, resourceslices" in text
    assert "Whole devices left What waits" in text


async def test_overview_says_which_watch_is_silent_and_draws_the_last_hour(made: MadeCluster) -> None:
    reports = Reports(made.view(), live=True, contact_ages=lambda: {"pods": 400.0, "nodes": 3.0})
    history = History()
    for at, taken, waiting in ((-1800, 10.0, 4), (-1790, 20.0, 5), (-600, None, 8), (0, 40.0, None)):
        history.add(Point(NOW + at, taken, waiting))
    reports.history = history.points()
    found = overview(reports)
    assert [problem.text for problem in found.problems if "watch" in problem.text] == [
        "The watch of pods has not answered for 6m"
    ]
    assert found.in_use == Line([(0, 19.2), (120, 19.2), (120, 14.4), (120, 14.4)], 1800, 20.0, 40.0, 40.0)
    assert found.waiting == Line([(0, 9.0), (80, 9.0), (80, 0.0), (120, 0.0)], 1800, 5, 8, 8)
    page = PageApplication(States(reports), CommandLines(), TOKEN)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(page.asgi), base_url="http://127.0.0.1") as client:
        text = (await shown(client, f"/{TOKEN}/overview")).text
    assert "Taken, the last 30m: 20% to 40%, now 40%" in text
    assert "Waiting, the last 30m: 5 to 8, now 8" in text


def test_history_has_the_last_hour_in_a_bounded_number_of_points() -> None:
    history = History()
    for moment in range(3 * 3600):
        history.add(Point(float(moment), None, moment))
    points = history.points()
    assert len(points) <= MOST_POINTS
    assert points[0].at >= 3 * 3600 - 1 - KEPT_SECONDS
    assert points[-1].waiting == 3 * 3600 - 1


async def test_map_has_a_square_for_each_device_that_leads_to_it_and_a_legend_with_numbers(
    open_page: Open, made: MadeCluster
) -> None:
    client = open_page(made)
    page = await shown(client, "map")
    assert "1 allocated 1 unusable 1 usable" in page.text
    assert squares(page) == [
        "n1 mig-0: allocated: ml/train",
        "n1 mig-1: usable",
        "n2 gpu-0: unusable: tainted; taint example.com/broken:NoSchedule",
    ]
    links = [str(attrs["href"]) for tag, attrs in page.tags if tag == "a" and "square" in (attrs.get("class") or "")]
    assert links[0] == f"/{TOKEN}/node?name=n1#gpu.example.com/n1/mig-0"
    node = await shown(client, links[0].removeprefix(f"/{TOKEN}/").partition("#")[0])
    assert "gpu.example.com/n1/mig-0" in {attrs.get("id") for _, attrs in node.tags}


async def test_map_can_be_narrowed_to_a_driver_and_to_nodes_and_its_command_says_so(
    open_page: Open, made: MadeCluster
) -> None:
    made.gpus("n2", device("nic-0"), driver="nic.example.com")
    client = open_page(made)
    page = await shown(client, "map?driver=nic.example.com&nodes=n2")
    assert squares(page) == ["n2 nic-0: usable"]
    assert "kubectl dra devices --driver nic.example.com --snapshot x.tar.gz" in page.text
    assert "No pool matches." in (await shown(client, "map?nodes=n9")).text


async def test_map_of_a_class_has_the_devices_that_the_class_means(open_page: Open, made: MadeCluster) -> None:
    made.gpus("n2", device("nic-0"), driver="nic.example.com")
    made.add(device_class("nic", "device.driver == 'nic.example.com'"), device_class("broken", "device.none"))
    client = open_page(made)
    assert squares(await shown(client, "map?class=nic")) == ["n2 nic-0: usable"]
    assert squares(await shown(client, "map?class=broken")) == []


async def test_class_with_a_selector_of_an_unknown_kind_means_no_device(open_page: Open, made: MadeCluster) -> None:
    unknown = device_class("newer")
    unknown["spec"] = {"selectors": [{"other": {}}]}
    made.add(unknown)
    assert squares(await shown(open_page(made), "map?class=newer")) == []


async def test_map_in_groups_by_label_has_the_nodes_without_it_too(open_page: Open, made: MadeCluster) -> None:
    made.nodes("n3", "n10")
    for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        next(each for each in made.objects["nodes"] if each["metadata"]["name"] == name)["metadata"]["labels"] = {
            "rack": rack,
            "kubernetes.io/hostname": name,
        }
    for name in ("n3", "n10"):
        made.gpus(name, device("gpu-0"))
    client = open_page(made)
    page = await shown(client, "map?group=label:rack")
    parts = ["without this label 1 of 1 device usable", "a 1 of 2 devices usable", "b 1 of 2 devices usable"]
    assert [page.text.index(part) for part in parts] == sorted(page.text.index(part) for part in parts)
    options = [attrs["value"] for tag, attrs in page.tags if tag == "option"]
    assert "label:rack" in options
    assert "label:kubernetes.io/hostname" not in options


async def test_map_in_groups_by_class_has_a_device_in_each_of_its_classes_and_counts_it_once(
    open_page: Open, made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.gpus("n2", device("nic-0"), device("nic-1"), driver="nic.example.com")
    made.add(device_class("any", "true"))
    client = open_page(made)
    page = await shown(client, "map?group=class")
    gpus = ["n1 mig-0", "n1 mig-1", "n2 gpu-0"]
    assert [square.partition(":")[0] for square in squares(page)] == [*gpus, "n2 nic-0", "n2 nic-1", *gpus]
    assert "any 3 of 5 devices usable" in page.text
    assert "gpu 1 of 3 devices usable" in page.text
    assert "3 usable" in page.text
    assert "no group" not in page.text
    monkeypatch.setattr("dra_extender.page.map_view._MOST_CLASSES", 1)
    made.objects["deviceclasses"][-1]["spec"] = device_class("any", 'device.driver == "nic.example.com"')["spec"]
    page = await shown(open_page(made), "map?group=class")
    assert "of other classes, or of none 2 of 2 devices usable" in page.text
    assert "1 class has no group." in page.text


async def test_map_can_be_sorted_by_what_is_free_and_shows_one_state_alone(open_page: Open, made: MadeCluster) -> None:
    made.nodes("n10")
    made.gpus("n10", device("gpu-0"), device("gpu-1"))
    client = open_page(made)
    by_name, by_free = [squares(await shown(client, f"map?scale=nodes&sort={sort}")) for sort in ("name", "free")]
    assert by_name == ["n1: 1 of 2 devices", "n2: 0 of 1 device", "n10: 2 of 2 devices"]
    assert by_free == ["n10: 2 of 2 devices", "n1: 1 of 2 devices", "n2: 0 of 1 device"]
    page = await shown(client, "map?state=allocated")
    classes = [attrs.get("class") for tag, attrs in page.tags if tag == "a" and "title" in attrs]
    assert classes == ["of", "square allocated", "square off", "of", "square off", "of", "square off", "square off"]


async def test_map_of_very_many_devices_has_a_square_for_each_node(open_page: Open) -> None:
    made = MadeCluster()
    for number in range(4):
        made.nodes(f"n{number}")
        made.gpus(f"n{number}", *(device(f"gpu-{each}") for each in range(700)))
    page = await shown(open_page(made), "map")
    assert squares(page) == [f"n{number}: 700 of 700 devices" for number in range(4)]


async def test_pool_that_several_nodes_reach_has_a_cell_that_leads_to_one_of_them(
    open_page: Open, made: MadeCluster
) -> None:
    made.add(resource_slice("shared", pool="shared", allNodes=True, devices=[device("nic")]))
    page = await shown(open_page(made), "map")
    links = [str(attrs["href"]) for _, attrs in page.tags if str(attrs.get("title")).startswith("shared")]
    assert links == [f"/{TOKEN}/node?name=n1", f"/{TOKEN}/node?name=n1#gpu.example.com/shared/nic"]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["n1", "n2"], ["n1", "n2"]),
        (["worker-00010", "worker-00011"], ["00010", "00011"]),
        (["ip-10-0-1-7.ec2.internal", "ip-10-0-12-8.ec2.internal"], ["1-7", "12-8"]),
        (["a-long-name"], ["a-long-name"]),
        (["long-name", "long-name-2"], ["long-name", "-2"]),
    ],
)
def test_label_of_a_cell_is_what_distinguishes_its_name(names: list[str], labels: list[str]) -> None:
    assert list(map(shortening(names), names)) == labels


class Tables(HTMLParser):
    """The tables of a template: the texts of each header, and the labels of the cells of each row."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self.headers: list[list[str]] = []
        self.rows: list[tuple[list[str], list[str | None]]] = []
        self._open: list[tuple[list[str], list[str | None]]] = []
        self._in_header = False
        self.feed(re.sub(r"{%.*?%}", "", template))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._open.append(([], []))
        elif tag == "thead":
            self._in_header = True
        elif tag == "th" and self._in_header:
            self._open[-1][0].append("")
        elif tag == "tr" and not self._in_header:
            self._open[-1] = (self._open[-1][0], [])
            self.rows.append(self._open[-1])
        elif tag in ("th", "td") and "colspan" not in dict(attrs):
            self._open[-1][1].append(dict(attrs).get("data-label"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.headers.append(self._open.pop()[0])
        elif tag == "thead":
            self._in_header = False

    def handle_data(self, data: str) -> None:
        if self._in_header and self._open[-1][0]:
            self._open[-1][0][-1] += data


def test_each_cell_of_a_table_has_the_header_of_its_column() -> None:
    templates = sorted(files("dra_extender.page").joinpath("templates").iterdir(), key=lambda file: file.name)
    tables = [Tables(template.read_text(encoding="utf-8")) for template in templates]
    rows = [row for found in tables for row in found.rows]
    assert len(rows) > sum(len(found.headers) for found in tables) > 0
    assert [labels for header, labels in rows if labels and labels != header] == []


async def test_node_has_counters_groups_and_whose_they_are_and_each_device_with_its_holder(
    open_page: Open, made: MadeCluster
) -> None:
    page = await shown(open_page(made), "node?name=n1")
    assert "kubectl dra devices n1 --snapshot x.tar.gz" in page.text
    assert "gpu-0 sm 42 of 98 mig mig-0, ml/train" in page.text
    assert [attrs["value"] for tag, attrs in page.tags if tag == "meter"] == ["42"]
    assert "mig-1 usable" in page.text
    assert f"/{TOKEN}/pending?pod=ml%2Ftrain#pod" in {attrs.get("href") for _, attrs in page.tags}
    assert "taint example.com/broken:NoSchedule" in (await shown(open_page(made), "node?name=n2")).text


async def test_node_says_of_a_device_why_it_is_unusable_to_which_node_it_is_bound_and_that_its_holder_has_ended(
    open_page: Open, made: MadeCluster
) -> None:
    made.objects["pods"][0]["status"] = {"phase": "Succeeded"}
    page = await shown(open_page(made), "node?name=n1")
    assert "ml/train (ended)" in page.text
    assert "unusable: tainted" in (await shown(open_page(made), "node?name=n2")).text
    fabric = MadeCluster()
    fabric.nodes("n1")
    fabric.add(device_class("fabric"))
    port = device("port-0", allowMultipleAllocations=True, bindsToNode=True)
    fabric.add(resource_slice("rack", pool="rack", devices=[port], allNodes=True))
    fabric.running("old", "n1", "port-0", request("gpu", "fabric"))
    allocation = fabric.objects["resourceclaims"][-1]["status"]["allocation"]
    allocation["devices"]["results"][0].update(pool="rack", shareID="3b1c9b8e-0000-4000-8000-000000000001")
    allocation["nodeSelector"] = on_node("n1")
    assert "bound to node n1" in (await shown(open_page(fabric), "node?name=n1")).text


async def test_node_has_what_was_frozen_beside_what_the_slice_has_now(open_page: Open, made: MadeCluster) -> None:
    claim = made.objects["resourceclaims"][0]
    allocation = msgspec.convert(claim["status"]["allocation"], AllocationResult)
    drawn = CounterConsumption(counter_set="gpu-0", counters=(("sm", 14 * 10**9),), compatibility_groups=("vgpu",))
    holding = DeviceHolding(driver=DRIVER, pool="n1", device="mig-0", consumption=(drawn,))
    claim["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, (holding,))}
    page = await shown(open_page(made), "node?name=n1")
    assert "Counter set What At allocation Slice now gpu-0 sm 14 42 gpu-0 groups vgpu mig" in page.text


async def test_device_that_is_not_published_any_more_is_said(open_page: Open, made: MadeCluster) -> None:
    made.running("ghost", "n2", "gpu-9", request("gpu", "gpu"))
    assert "not published any more" in (await shown(open_page(made), "node?name=n2")).text


@pytest.mark.parametrize("view", VIEWS)
async def test_each_view_says_source_age_release_and_feature_gates(
    open_page: Open, made: MadeCluster, view: str
) -> None:
    page = await shown(open_page(made), view)
    assert "source a test, read 2026-11-25T09:46:40Z, v1.37.1" in page.text
    assert "gates not known, all taken as on" in page.text


@pytest.mark.parametrize("view", VIEWS)
async def test_view_loads_nothing_from_elsewhere_and_has_no_inline_script_or_style(
    open_page: Open, made: MadeCluster, view: str
) -> None:
    page = await shown(open_page(made), view)
    for tag, attrs in page.tags:
        assert "style" not in attrs
        assert not any(name.startswith("on") for name in attrs)
        if tag == "script":
            assert attrs["src"] == f"/{TOKEN}/static/page.js"
        for name in ("src", "href", "action"):
            if name in attrs:
                assert re.match(rf"/{TOKEN}/|#", str(attrs[name])), (tag, attrs)


@pytest.mark.parametrize("name", ["page.css", "page.js", "icon.svg"])
async def test_what_a_view_loads_is_there(open_page: Open, made: MadeCluster, name: str) -> None:
    response = await open_page(made).get(f"static/{name}")
    assert response.status_code == 200
    assert response.content


async def test_landing_leads_to_the_first_view(open_page: Open, made: MadeCluster) -> None:
    response = await open_page(made).get("")
    assert response.status_code == 303
    assert response.headers["location"].startswith(f"/{TOKEN}/")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("node?name=n9", 404, "node n9 does not exist in a test"),
        ("none", 404, "There is no view 'none'."),
        ("pending?pod=ml/none", 404, "pod ml/none does not exist in a test"),
        ("pending?pod=none", 400, "pod: expected namespace/name, got 'none'"),
        ("pending?round=x", 400, "round: expected a number from 1, got 'x'"),
        ("map?group=label:none", 400, "group: expected driver"),
        ("map?state=none", 400, "state: expected allocated, "),
        ("map?class=none", 400, "class: expected gpu, got 'none'"),
        ("map?page=2", 400, "page: expected 1 to 1, got 2"),
        ("map?page=0", 400, "page: expected a number from 1, got '0'"),
        ("map?page=x", 400, "page: expected a number from 1, got 'x'"),
        ("map?page=²", 400, "page: expected a number"),
        ("map?page=" + "9" * 5000, 400, "page: expected a number"),
    ],
)
async def test_what_is_not_there_is_said_in_a_page(
    open_page: Open, made: MadeCluster, path: str, status: int, said: str
) -> None:
    page = await shown(open_page(made), path, status)
    assert said in page.text


async def test_view_that_fails_says_so_and_the_others_go_on(
    open_page: Open, made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault <here>")

    monkeypatch.setattr(Reports, "node", fail)
    client = open_page(made)
    assert "This view failed: RuntimeError: a fault <here>" in (await shown(client, "node?name=n1", 500)).text
    assert (await client.get("map")).status_code == 200


@pytest.mark.parametrize("seconds", [1e300, -1e300, 0.0])
async def test_time_that_no_calendar_has_is_shown_all_the_same(
    open_page: Open, made: MadeCluster, seconds: float
) -> None:
    made.now = seconds
    for view in VIEWS:
        assert (await open_page(made).get(view)).status_code == 200, view


async def test_long_lists_have_pages_with_the_same_choices(open_page: Open, made: MadeCluster) -> None:
    for number in range(250):
        made.nodes(f"m{number:03}")
        made.gpus(f"m{number:03}", device("gpu-0"))
    client = open_page(made)
    first, last = await shown(client, "map?sort=free"), await shown(client, "map?page=2")
    assert f"1 to {DEVICE_CELLS} of 252, page 1 of 2" in first.text
    assert f"{DEVICE_CELLS + 1} to 252 of 252, page 2 of 2" in last.text
    links = [attrs["href"] for tag, attrs in first.tags if attrs.get("rel") == "next"]
    assert links == [f"/{TOKEN}/map?page=2&sort=free"]


async def test_kinds_that_could_not_be_read_are_named(open_page: Open, made: MadeCluster) -> None:
    made.missing = (MissingKind(kind="podgroups", reason="list podgroups: 403 Forbidden"),)
    assert (
        "partial the account may not list podgroups (ClusterRole dra-viewer grants it)"
        in (await shown(open_page(made), "map")).text
    )


def cluster(kinds: int) -> MadeCluster:
    """One node, and pods that wait for so many different reasons."""
    made = MadeCluster()
    made.nodes("n1")
    made.gpus("n1", device("gpu-0"))
    made.add(*(device_class(f"class-{number}", f"device.driver == '{number}'") for number in range(kinds)))
    for number in range(kinds):
        made.pod(f"late-{number}", request("gpu", f"class-{number}"))
        made.pod(f"none-{number}", request("gpu", f"missing-{number}"))
    return made


def command(namespace: str, name: str) -> str:
    return CommandLines().why(namespace, name)


def test_steps_are_looked_for_until_the_time_of_an_answer_is_used_up_and_the_next_answer_goes_on() -> None:
    reports = Reports(cluster(2).view())
    moments = iter([0.0, 0.0, STEP_SECONDS, STEP_SECONDS, *([STEP_SECONDS] * 100)])
    first = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: next(moments))
    assert [each.next is None for each in first.rows][:2] == [False, True]
    second = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: 0.0)
    assert all(each.next is not None for each in second.rows)


def test_pods_beyond_a_round_are_counted_and_looked_at_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "EVALUATED_IN_A_ROUND", 50)
    made = cluster(1)
    made.nodes(*(f"m{number:05}" for number in range(50)))
    reports = Reports(made.view())
    first = pending_pods(reports, None, 1, 1, command, cpu_time=lambda: 0.0)
    assert (first.report.unasked > 0, first.more) == (True, 2)
    last = pending_pods(reports, None, 3, 1, command, cpu_time=lambda: 0.0)
    assert (last.report.unasked, last.more) == (0, 0)


def test_command_line_is_safe_in_a_shell_and_never_takes_a_name_for_an_option() -> None:
    lines = CommandLines(("--snapshot", "a b.tar.gz"))
    assert lines.why("ml", "$(reboot)") == "kubectl dra why '$(reboot)' --namespace ml --snapshot 'a b.tar.gz'"
    assert lines.why("-ml", "--as=root") == "kubectl dra why --namespace=-ml --snapshot 'a b.tar.gz' -- --as=root"
    assert lines.why("default", "a") == "kubectl dra why a --snapshot 'a b.tar.gz'"
    assert lines.devices(driver="-x") == "kubectl dra devices --driver=-x --snapshot 'a b.tar.gz'"


FEW_BYTES = 800_000


@pytest.fixture
def flooded() -> MadeCluster:
    """A pool of many devices on one node; pods that wait for many reasons, of many schedulers; claims with many findings."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    slices = 12
    for number in range(slices):
        devices = [device(f"d-{number}-{each}", taints=[{"key": "k", "effect": "NoSchedule"}]) for each in range(128)]
        made.add(resource_slice(f"s-{number}", node="n1", slice_count=slices, devices=devices))
    for number in range(ROWS + 150):
        made.pod(f"late-{number}", request("gpu", "gpu"), schedulerName=f"scheduler-{number}")
        made.objects["pods"][-1]["spec"]["schedulingGates"] = [{"name": f"example.com/gate-{number}"}]
        made.running(f"run-{number}", "n1", f"d-0-{number}", request("gpu", "gpu"))
    return made


@pytest.mark.parametrize(
    "view",
    [
        "overview",
        "pending",
        "map",
        "map?class=gpu&group=driver",
        "map?group=class",
        "node?name=n1",
        "waiting",
        "health",
    ],
)
async def test_view_of_a_flooded_cluster_is_bounded(open_page: Open, flooded: MadeCluster, view: str) -> None:
    response = await open_page(flooded).get(view)
    assert response.status_code == 200
    assert len(response.content) < FEW_BYTES


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("pending", f"1 to {ROWS} of {ROWS + 150}, page 1 of 3"),
        ("overview", f"All causes, and what would help: {ROWS + 145} more"),
        ("node?name=n1", f"{12 * 128 + 122 - MOST_DEVICES} more devices: the command prints all."),
        ("health", "more: the command prints all."),
    ],
)
async def test_view_says_what_it_leaves_out(open_page: Open, flooded: MadeCluster, view: str, said: str) -> None:
    assert said in (await open_page(flooded).get(view)).text


async def test_health_has_the_schedulers_with_most_pods_and_the_gravest_findings(
    open_page: Open, flooded: MadeCluster
) -> None:
    text = (await open_page(flooded).get("health")).text
    assert text.count("<bdi>scheduler-") == MOST_SCHEDULERS
    assert text.count('class="warning">error') <= MOST_FINDINGS


async def test_map_of_many_devices_has_so_many_squares_and_says_how_many_more_there_are(open_page: Open) -> None:
    made = MadeCluster()
    nodes = DEVICE_CELLS + 2
    made.nodes(*(f"n{number}" for number in range(nodes)))
    for number in range(nodes):
        made.gpus(f"n{number}", *(device(f"d-{each}") for each in range(20)))
    text = (await open_page(made).get("map?scale=devices")).text
    assert text.count('class="square usable"') <= MOST_SQUARES + 20
    assert "4 more devices" in text
    assert f"1 to {DEVICE_CELLS} of {nodes}, page 1 of 2" in text


async def test_overview_has_the_drivers_and_classes_with_most_devices(open_page: Open) -> None:
    made = MadeCluster()
    made.nodes("n1")
    for number in range(MOST_KINDS + 2):
        made.gpus("n1", *(device(f"d-{each}") for each in range(number + 1)), driver=f"d{number}.example.com")
        made.add(device_class(f"c-{number}", f"device.driver == 'd{number}.example.com'"))
    text = (await open_page(made).get("overview")).text
    assert ("d11.example.com" in text, "d1.example.com" in text, "c-11" in text) == (True, False, True)
    assert "4 more kinds" in text
