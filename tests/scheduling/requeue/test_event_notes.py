"""The Event about a refused pod says what a person needs to change something."""

import pytest
from dra_extender.cel.budget import EXPLANATION_COST
from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.scheduling.evaluation.filter_result import MOST_REASONS
from dra_extender.scheduling.ports.cluster import NOTE_BYTES
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.controlplane.objects import request
from tests.support.scheduling.world import DRIVER, InMemoryExtender

TYPE = f'device.attributes["{DRIVER}"].type == "H100"'


def _cluster() -> InMemoryExtender:
    """Devices on two nodes, and pod p1 with a claim that none of them suits."""
    world = InMemoryExtender()
    world.device_class()
    for node in ("n1", "n2"):
        world.node(node)
        devices = [{"name": f"gpu-{index}", "attributes": {"type": {"string": "A100"}}} for index in range(2)]
        world.slice(node, devices)
    world.add_claim("c1", selector=TYPE)
    world.add_pod("p1", "c1")
    return world


async def test_the_values_a_selector_compared_are_said() -> None:
    world = _cluster()
    await world.filter("p1", "n1")
    (message,) = world.messages("p1")
    refusal = 'claim "c1", request "req": no device matches the selectors'
    why = "none of 2 devices match class gpu and the selectors of the request"
    values = f'2 devices: device.attributes["{DRIVER}"].type is "A100", wanted "H100"'
    more = "More: kubectl dra why p1 -n default"
    assert message == f"1 of 1 nodes: {refusal}: {why}: {values} (on n1). {more}"


async def test_the_same_state_gives_the_same_message_which_follows_the_devices() -> None:
    world = _cluster()
    for _ in range(3):
        await world.filter("p1", "n1")
    assert len(set(world.messages("p1"))) == 1
    world.delete(StoredKind.SLICE, "n1-devices")
    world.slice("n1", [{"name": "gpu-0", "attributes": {"type": {"string": "L4"}}}])
    await world.filter("p1", "n1")
    assert 'is "L4", wanted "H100"' in world.messages("p1")[-1]


def _hostile(number: int) -> str:
    """False on every device, in as many terms as fit, each of which takes a good part of what one evaluation may spend."""
    term = f"lists.range({90 + number}).all(x, lists.range(90).all(y, x + y >= 0))"
    return " && ".join([*[term] * 5, f'device.attributes["{DRIVER}"].type == "{number}"'])


async def test_explaining_a_hostile_claim_takes_a_small_share_and_says_where_it_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = InMemoryExtender()
    world.device_class()
    world.node("n1")
    kinds = [{"name": f"gpu-{kind}", "attributes": {"type": {"string": f"kind-{kind}"}}} for kind in range(2)]
    world.slice("n1", kinds)
    world.add_claim_of("c1", *(request(f"r{number}", "gpu", _hostile(number)) for number in range(8)))
    world.add_pod("p1", "c1")
    frames: list[EvaluationFrame] = []
    begin = Evaluation.__init__

    def begun(self: Evaluation, *arguments: object, **options: object) -> None:
        begin(self, *arguments, **options)  # type: ignore[arg-type]
        frames.append(self._frame)

    monkeypatch.setattr(Evaluation, "__init__", begun)
    for _ in range(2):
        await world.filter("p1", "n1")
    spent = sum(max(frame.cost, frame.work // 2) for frame in frames)
    assert spent < 1.1 * EXPLANATION_COST
    messages = set(world.messages("p1"))
    assert len(messages) == 1
    assert "the values were not looked up: the limit for explanations was reached" in messages.pop()


async def test_only_the_request_that_was_refused_is_explained_and_on_a_bounded_number_of_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = InMemoryExtender()
    world.device_class()
    world.node("n1")
    devices = [
        {"name": f"gpu-{index}", "attributes": {"type": {"string": "A100"}, "n": {"int": index}}}
        for index in range(200)
    ]
    world.slice("n1", devices)
    kinds = ("first", "second")
    world.add_claim_of(
        "c1", *(request(kind, "gpu", f'device.attributes["{DRIVER}"].type == "{kind}"') for kind in kinds)
    )
    world.add_pod("p1", "c1")
    explained: list[str] = []
    prepare = ExplainableExpression.__init__

    def prepared(self: ExplainableExpression, source: str, *arguments: object) -> None:
        explained.append(source)
        prepare(self, source, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ExplainableExpression, "__init__", prepared)
    await world.filter("p1", "n1")
    (message,) = world.messages("p1")
    assert [each[-7:] for each in explained] == ['"first"']
    assert "72 devices were not looked at" in message


def _many_reasons(nodes: int, claim: str = "c1", prefix: str = "r") -> InMemoryExtender:
    """Each node lacks the device for another request of the claim; the pod is p1."""
    world = InMemoryExtender()
    world.device_class()
    names = [f"{prefix}{number}" for number in range(nodes)]
    for lacking in range(nodes):
        world.node(f"n{lacking}")
        kinds = [kind for kind in range(nodes) if kind != lacking]
        world.slice(f"n{lacking}", [{"name": f"gpu-{kind}", "attributes": {"kind": {"int": kind}}} for kind in kinds])
    kind_of = f'device.attributes["{DRIVER}"].kind'
    world.add_claim_of(claim, *(request(name, "gpu", f"{kind_of} == {kind}") for kind, name in enumerate(names)))
    world.add_pod("p1", claim)
    return world


async def test_one_answer_names_a_bounded_number_of_reasons_and_so_does_the_note() -> None:
    nodes = [f"n{number}" for number in range(MOST_REASONS + 4)]
    world = _many_reasons(len(nodes))

    answer = await world.filter("p1", *nodes)

    assert set(answer.unresolvable) == set(nodes)
    texts = list(answer.unresolvable.values())
    assert len(set(texts)) == MOST_REASONS + 1
    assert texts.count("node(s): further reasons") == 4
    (note,) = world.messages("p1")
    assert note.count(" nodes: claim ") == MOST_REASONS
    assert f"; 4 of {len(nodes)} nodes: further reasons. More: " in note


async def test_as_many_reasons_as_an_answer_names_are_all_named() -> None:
    nodes = [f"n{number}" for number in range(MOST_REASONS)]
    answer = await _many_reasons(len(nodes)).filter("p1", *nodes)
    assert len(set(answer.unresolvable.values())) == MOST_REASONS
    assert not any("further" in text for text in answer.unresolvable.values())


async def test_the_longest_names_leave_answer_and_note_bounded_and_the_command_whole() -> None:
    nodes = [f"n{number}" for number in range(MOST_REASONS + 4)]
    world = _many_reasons(len(nodes), claim="c" * 63, prefix="r" * 61)

    answer = await world.filter("p1", *nodes)

    assert sum(map(len, set(answer.unresolvable.values()))) < 3000
    (note,) = world.messages("p1")
    assert len(note.encode()) <= NOTE_BYTES
    assert note.count(" of 12 nodes: ") == MOST_REASONS + 1
    assert note.endswith(". More: kubectl dra why p1 -n default")


async def test_the_texts_for_nodes_do_not_depend_on_the_node() -> None:
    world = InMemoryExtender()
    world.device_class()
    for size, node in enumerate(("n1", "n2", "n3"), 1):
        world.node(node)
        world.slice(node, [{"name": f"{node}-{n}", "attributes": {"type": {"int": size}}} for n in range(size)])
    world.add_claim("c1", selector=f'device.attributes["{DRIVER}"].type == 9')
    world.add_pod("p1", "c1")
    answer = await world.filter("p1", "n1", "n2", "n3")
    assert len(set(answer.unresolvable.values())) == 1
