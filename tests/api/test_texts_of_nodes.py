"""How the texts for nodes are written: as any JSON encoder would, whether they are equal or not."""

from collections.abc import Mapping

import httpx
import msgspec
import pytest
from dra_extender.api.protocol import encode, encode_texts
from dra_extender.scheduling.ports.errors import FilterResponse, OneText
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api.sites import Site

PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=20)
REASON = 'node(s): claim "gpu", request "gpu": matching devices are in use'


@given(st.dictionaries(PLAIN, st.just(REASON) | st.text(max_size=9), max_size=40))
def test_texts_are_read_back_whatever_they_are(by_node: dict[str, str]) -> None:
    for plain in (True, False):
        written = encode(encode_texts(by_node, plain=plain))
        assert (msgspec.json.decode(written) or {}) == by_node


@given(st.lists(PLAIN, min_size=1, max_size=40, unique=True), st.text(max_size=9))
def test_one_text_for_all_nodes_is_read_back(names: list[str], text: str) -> None:
    for plain in (True, False):
        written = encode(encode_texts(OneText(names, text), plain=plain))
        assert msgspec.json.decode(written) == dict.fromkeys(names, text)


@pytest.mark.parametrize(
    "texts", [OneText(["a", "b"], REASON), {"a": REASON, "b": REASON}, {"a": REASON, "b": "node(s): further reasons"}]
)
@pytest.mark.parametrize("spaces", ["", " "])
async def test_texts_with_quotes_arrive_as_they_are(
    client: httpx.AsyncClient, site: Site, texts: Mapping[str, str], spaces: str
) -> None:
    site.verbs.answer = FilterResponse((), texts, texts)
    pod = '{"metadata":{"name":"p","namespace":"ns","uid":"u"}}'
    content = f'{{"Pod":{pod},"NodeNames":["a",{spaces}"b"]}}'
    answer = (await client.post("/filter", content=content)).json()
    assert answer == {"NodeNames": [], "FailedNodes": texts, "FailedAndUnresolvableNodes": texts}
