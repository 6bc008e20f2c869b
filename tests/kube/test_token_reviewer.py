"""What is asked about a token, and what becomes of answers that say nothing."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.token_reviewer import TokenReviewer
from dra_extender.scheduling.ports.cluster import ClusterError, ServerUnavailableError

from tests.support.kube.fake_api_server import FakeApiServer, status_answer
from tests.support.kube.recording import CountingObserver

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
USER = {"username": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}


@pytest_asyncio.fixture
async def reviewer(settings: KubeSettings, observer: CountingObserver) -> AsyncIterator[TokenReviewer]:
    made = TokenReviewer(settings, observer)
    yield made
    await made.close()


def answer(server: FakeApiServer, path: str, **status: object) -> None:
    server.intervene("POST", path, lambda _: web.json_response({"status": status}, status=201))


async def test_the_user_of_the_token_is_asked_about_with_all_that_is_known(
    server: FakeApiServer, reviewer: TokenReviewer
) -> None:
    answer(server, TOKENS, authenticated=True, user=USER)
    answer(server, ACCESS, allowed=True)
    assert await reviewer.review("secret") == ("prometheus", True)
    first, second = (json.loads(each.body) for each in server.seen)
    assert first["spec"] == {"token": "secret"}
    attributes = {"path": "/metrics", "verb": "get"}
    known = {"user": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}
    assert second["spec"] == {**known, "nonResourceAttributes": attributes}


async def test_a_token_of_nobody_is_not_asked_about_further(server: FakeApiServer, reviewer: TokenReviewer) -> None:
    answer(server, TOKENS, authenticated=False, user=USER)
    assert await reviewer.review("secret") == ("", False)
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [{}, {"allowed": False}, {"denied": True}])
async def test_only_a_yes_is_a_yes(server: FakeApiServer, reviewer: TokenReviewer, status: dict[str, object]) -> None:
    answer(server, TOKENS, authenticated=True, user=USER)
    answer(server, ACCESS, **status)
    assert await reviewer.review("secret") == ("prometheus", False)


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"status": 7}', '{"status": {"authenticated": "yes"}}'])
async def test_an_answer_that_says_nothing_allows_nothing(
    server: FakeApiServer, reviewer: TokenReviewer, text: str
) -> None:
    server.intervene("POST", TOKENS, lambda _: web.Response(text=text, status=201))
    with pytest.raises(ServerUnavailableError, match="cannot be read"):
        await reviewer.review("secret")


async def test_a_refusal_is_an_error_without_the_token(server: FakeApiServer, reviewer: TokenReviewer) -> None:
    server.intervene("POST", TOKENS, lambda _: status_answer(403, "Forbidden", "may not create tokenreviews"))
    with pytest.raises(ClusterError, match="tokenreviews") as refused:
        await reviewer.review("secret")
    assert "secret" not in str(refused.value)
