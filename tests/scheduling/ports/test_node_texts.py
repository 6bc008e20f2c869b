"""One text for many nodes is the mapping that it stands for."""

import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.ports.cluster import NOTE_BYTES, joined_note, shorten
from dra_extender.scheduling.ports.filter_response import OneText
from hypothesis import given
from hypothesis import strategies as st

NODES = ["n2", "n1", "n3"]
FULL = Rejection(code=Code.NO_MATCH)
OTHER = Rejection(code=Code.NODE_UNKNOWN)


def rejected(*nodes: str, rejection: Rejection = FULL) -> FilterResult:
    result = FilterResult()
    result.reject_all(nodes, rejection)
    return result


def test_it_equals_the_dictionary() -> None:
    texts = OneText(NODES, "busy")
    assert texts == dict.fromkeys(NODES, "busy") == texts.as_dict()
    assert (len(texts), list(texts), list(texts.values())) == (3, NODES, ["busy"] * 3)
    assert ("n1" in texts, "n4" in texts, texts.get("n4")) == (True, False, None)
    assert "busy" in repr(texts)
    with pytest.raises(KeyError):
        texts["n4"]


def test_without_nodes_it_is_false() -> None:
    assert not OneText([], "busy")


def test_a_result_with_one_reason_is_no_dictionary_and_may_become_one() -> None:
    result = rejected(*NODES)
    assert isinstance(result.texts, OneText)
    result.reject("n1", OTHER)
    assert result.texts == {"n2": FULL.summary, "n1": OTHER.summary, "n3": FULL.summary}
    assert [(each.nodes, each.rejection) for each in result.why()] == [(2, FULL), (1, OTHER)]
    assert result.codes == {Code.NO_MATCH, Code.NODE_UNKNOWN}


def test_batches_are_joined() -> None:
    result = rejected("n1")
    result.reject_batch(["n2", "n3"], [OTHER.summary] * 2, lambda _: OTHER)
    assert result.texts == {"n1": FULL.summary, "n2": OTHER.summary, "n3": OTHER.summary}
    result.reject("n1", OTHER)
    assert result.codes == {Code.NODE_UNKNOWN}


def test_a_reason_that_no_node_has_any_more_can_be_reworded() -> None:
    result = rejected("n1")
    result.reject("n1", OTHER)
    result.reword(lambda rejection: Rejection(code=rejection.code, claim="c"))
    assert result.codes == {Code.NODE_UNKNOWN}
    assert [each.nodes for each in result.why()] == [1]


def test_a_reason_can_be_reworded() -> None:
    result = rejected(*NODES)
    result.reword(lambda _: OTHER)
    assert result.texts == dict.fromkeys(NODES, OTHER.summary)


@given(st.text(max_size=3000))
def test_a_note_is_a_beginning_of_the_text_and_fits(text: str) -> None:
    note = shorten(text)
    assert len(note.encode()) <= NOTE_BYTES
    if len(text.encode(errors="replace")) <= NOTE_BYTES:
        assert note == text.encode(errors="replace").decode()
    else:
        assert note.endswith("…")
        assert text.encode(errors="replace").decode().startswith(note[:-1])
        assert len(note.encode()) > NOTE_BYTES - 8


@given(st.lists(st.text(max_size=500), min_size=1, max_size=9), st.integers(min_value=200, max_value=2000))
def test_joined_parts_fit_and_only_the_longest_are_cut(parts: list[str], most: int) -> None:
    sizes = [len(part.encode(errors="replace")) for part in parts]

    text = joined_note(parts, "; ", most)

    assert len(text.encode(errors="replace")) <= most
    if sum(sizes) + 2 * (len(parts) - 1) <= most:
        assert text == "; ".join(parts)
    else:
        assert len(text.encode(errors="replace")) > most - 8 * len(parts)
    for part, size in zip(parts, sizes, strict=True):
        if size <= (most - 2 * (len(parts) - 1)) // len(parts):
            assert part.encode(errors="replace").decode() in text.encode(errors="replace").decode()
