"""What is held and was decided can be read from inside the pod alone, and not often."""

import json

import httpx
import pytest
from dra_extender.api.debug import BURST, add_debug
from dra_extender.config.service_settings import is_loopback
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.hold_report import FORMAT, HOLDS_PATH, HoldReport
from dra_extender.scheduling.recent_decisions import DECISIONS_PATH, DecisionReport
from dra_extender.scheduling.recent_decisions import FORMAT as DECISIONS_FORMAT
from fastapi import FastAPI

from tests.support.clocks import SettableTime

REPORT = HoldReport(format=FORMAT, taken_at=Moment(5))
DECIDED = DecisionReport(format=DECISIONS_FORMAT, taken_at=Moment(6))


@pytest.fixture
def time() -> SettableTime:
    return SettableTime()


@pytest.fixture
def app(time: SettableTime) -> FastAPI:
    made = FastAPI()
    add_debug(made, lambda: REPORT, lambda: DECIDED, time)
    return made


async def get(app: FastAPI, peer: str = "127.0.0.1", path: str = HOLDS_PATH, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, client=(peer, 40_000))
    given = {"host": "localhost:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path, headers=given)


async def test_peer_on_the_loopback_address_is_answered(app: FastAPI) -> None:
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        answer = await get(app, peer)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.json() == {"format": FORMAT, "taken_at": "1970-01-01T00:00:05Z"}
        assert (await get(app, peer, DECISIONS_PATH)).json() == {
            "format": DECISIONS_FORMAT,
            "taken_at": "1970-01-01T00:00:06Z",
        }


@pytest.mark.parametrize(
    ("peer", "headers", "said"),
    [
        ("10.0.0.7", {}, "only on the loopback address of the pod"),
        ("fd00::7", {}, "only on the loopback address of the pod"),
        ("testclient", {}, "only on the loopback address of the pod"),
        ("127.0.0.1", {"host": "evil.example.com"}, "expected localhost as host"),
        ("127.0.0.1", {"host": "127.0.0.1.evil.example.com:8080"}, "expected localhost as host"),
        ("127.0.0.1", {"host": "10.0.0.7:8080"}, "expected localhost as host"),
        ("127.0.0.1", {"origin": "http://attacker.example"}, "expected no request of a web page"),
        ("127.0.0.1", {"x_forwarded_for": "10.0.0.7"}, "not answered through a proxy"),
        ("127.0.0.1", {"forwarded": "for=10.0.0.7"}, "not answered through a proxy"),
    ],
)
@pytest.mark.parametrize("path", [HOLDS_PATH, DECISIONS_PATH])
async def test_all_others_are_refused_with_a_sentence(
    app: FastAPI, path: str, peer: str, headers: dict[str, str], said: str
) -> None:
    answer = await get(app, peer, path, **headers)
    assert answer.status_code == 403
    assert said in json.loads(answer.content)["Error"]


async def test_refusals_take_nothing_from_the_rate(app: FastAPI) -> None:
    for _ in range(20):
        assert (await get(app, "10.0.0.7")).status_code == 403
    assert (await get(app)).status_code == 200


async def test_more_than_one_answer_a_second_is_refused_after_a_burst(app: FastAPI, time: SettableTime) -> None:
    answers = [(await get(app)).status_code for _ in range(int(BURST) + 1)]
    assert answers == [200] * int(BURST) + [429]
    assert (await get(app)).headers["retry-after"] == "1"
    time.now += 1.0
    assert [(await get(app)).status_code for _ in range(2)] == [200, 429]


def test_address_of_this_machine_is_told_from_all_others() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, ("::", "10.0.0.1", "::ffff:10.0.0.1", "localhost", "")))
