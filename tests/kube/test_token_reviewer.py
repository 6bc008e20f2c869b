"""What is asked about a token, and what becomes of answers that say nothing."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.token_reviewer import TokenReviewer
from dra_extender.scheduling.ports.cluster import ClusterError, ServerUnavailableError

from tests.simulation.api_server import Fault
from tests.simulation.faults import Faults
from tests.support.kube.recording import CountingObserver

TOKENS, ACCESS = "tokenreviews", "subjectaccessreviews"
USER = {"username": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}


@pytest_asyncio.fixture
async def reviewer(settings: KubeSettings, observer: CountingObserver) -> AsyncIterator[TokenReviewer]:
    made = TokenReviewer(settings, observer)
    yield made
    await made.close()


def answer(faults: Faults, review: str, **status: object) -> None:
    faults.plan("create", review, Fault(answer=(201, json.dumps({"status": status}).encode())))


async def test_the_user_of_the_token_is_asked_about_with_all_that_is_known(
    faults: Faults, reviewer: TokenReviewer
) -> None:
    answer(faults, TOKENS, authenticated=True, user=USER)
    answer(faults, ACCESS, allowed=True)
    assert await reviewer.review("secret") == ("prometheus", True)
    first, second = (json.loads(each.body) for each in faults.seen)
    assert first["spec"] == {"token": "secret"}
    attributes = {"path": "/metrics", "verb": "get"}
    known = {"user": "prometheus", "uid": "u", "groups": ["scrapers"], "extra": {"example.com/a": ["1"]}}
    assert second["spec"] == {**known, "nonResourceAttributes": attributes}


async def test_a_token_of_nobody_is_not_asked_about_further(faults: Faults, reviewer: TokenReviewer) -> None:
    answer(faults, TOKENS, authenticated=False, user=USER)
    assert await reviewer.review("secret") == ("", False)
    assert len(faults.seen) == 1


@pytest.mark.parametrize("status", [{}, {"allowed": False}, {"denied": True}])
async def test_only_a_yes_is_a_yes(faults: Faults, reviewer: TokenReviewer, status: dict[str, object]) -> None:
    answer(faults, TOKENS, authenticated=True, user=USER)
    answer(faults, ACCESS, **status)
    assert await reviewer.review("secret") == ("prometheus", False)


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"status": 7}', '{"status": {"authenticated": "yes"}}'])
async def test_an_answer_that_says_nothing_allows_nothing(faults: Faults, reviewer: TokenReviewer, text: str) -> None:
    faults.plan("create", TOKENS, Fault(answer=(201, text.encode())))
    with pytest.raises(ServerUnavailableError, match="cannot be read"):
        await reviewer.review("secret")


async def test_a_refusal_is_an_error_without_the_token(faults: Faults, reviewer: TokenReviewer) -> None:
    faults.plan("create", TOKENS, Fault(refuse=403, message="may not create tokenreviews"))
    with pytest.raises(ClusterError, match="tokenreviews") as refused:
        await reviewer.review("secret")
    assert "secret" not in str(refused.value)
