"""No web page can make a browser reach a listener: by its own name, from its own origin, or with a form."""

import pytest
from dra_extender.api.browser_guard import BrowserGuard, RequestRefusal

JSON = (b"content-type", b"application/json")


def refusal(
    host: str | None, *headers: tuple[bytes, bytes], method: bytes = b"GET", guard: BrowserGuard | None = None
) -> RequestRefusal | None:
    """What the guard says to a request with this Host header and these other headers."""
    given = headers if host is None else ((b"host", host.encode()), *headers)
    return (guard or BrowserGuard()).refusal(method, given)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fd00::7]",
        "localhost:40123",
        "LOCALHOST",
        "page.localhost",
        "dra-extender",
        "dra-extender:8080",
        "dra-extender.kube-system",
        "dra-extender.team1:8080",
        "dra-extender.dra.svc",
        "dra-extender.dra.svc.",
        "dra-extender.dra.svc.cluster.local:443",
        "10-1-2-3.dra.pod.cluster-a1",
        "ip-10-0-0-1.eu-west-1.compute.internal",
        None,
    ],
)
def test_address_and_names_that_nobody_can_register_are_accepted(host: str | None) -> None:
    assert refusal(host) is None
    assert refusal(host, JSON, method=b"POST") is None


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.com:8080",
        "127.0.0.1.attacker.com",
        "localhost.attacker.dev",
        "dra-extender.dra.svc.attacker.com",
        "dra-extender.dra.svc.cluster.local.attacker.com",
        "attacker.cluster.local",
        "svc.attacker.xn--p1ai",
        "a.dev.",
        "",
        " localhost",
        "localhost:x",
        "localhost:8080:1",
        "localhost@attacker",
        "user@localhost",
        "attacker.com/localhost",
        "127.0.0.1, attacker.com",
        "[::1]attacker.com",
        "[attacker.com]",
        "[::g]",
        "[127.0.0.1]",
        "lécal",
        "a" * 301,
        ".",
        "-",
    ],
)
def test_all_other_hosts_are_refused_with_a_sentence(host: str) -> None:
    refused = refusal(host, JSON, method=b"POST")
    assert refused is not None
    assert (refused.status, refused.reason) == (400, "host")
    assert len(refused.sentence) < 600


def test_further_names_are_accepted_by_a_setting_and_all_where_no_browser_can_connect() -> None:
    guard = BrowserGuard(("Extender.Example.com",))
    assert refusal("extender.example.com:8443", guard=guard) is None
    for host in ("example.com", "x.extender.example.com"):
        refused = refusal(host, guard=guard)
        assert refused is not None
        assert "server.allowed_hosts" in refused.sentence
    assert refusal("anything.example.com", guard=BrowserGuard(any_host=True)) is None


@pytest.mark.parametrize(
    "name", [b"host", b"origin", b"content-type", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"]
)
def test_header_that_decides_is_given_once(name: bytes) -> None:
    refused = refusal(None, (name, b"localhost"), (b"accept", b"a"), (b"accept", b"b"), (name, b"localhost"))
    assert refused is not None
    assert (refused.status, refused.reason) == (400, "repeated_header")


@pytest.mark.parametrize(
    "headers",
    [
        [(b"origin", b"http://attacker.com")],
        [(b"origin", b"http://localhost:3000")],
        [(b"origin", b"http://localhost")],
        [(b"origin", b"null")],
        [(b"origin", b"")],
        [(b"origin", b"localhost:8080")],
        [(b"sec-fetch-site", b"cross-site")],
        [(b"sec-fetch-site", b"same-site")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"iframe")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"no-cors"), (b"sec-fetch-dest", b"image")],
        [(b"origin", b"http://localhost:8080"), (b"sec-fetch-site", b"cross-site")],
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS"])
def test_request_that_a_page_of_another_origin_makes_a_browser_send_is_refused(
    method: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    refused = refusal("localhost:8080", JSON, *headers, method=method)
    assert refused is not None
    assert (refused.status, refused.reason) == (403, "origin")


def test_origin_without_a_host_is_refused() -> None:
    assert refusal(None, (b"origin", b"http://localhost")) is not None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"origin", b"http://localhost:8080")],
        [(b"origin", b"http://LOCALHOST:8080"), (b"sec-fetch-site", b"same-origin")],
        [(b"sec-fetch-site", b"none")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document")],
    ],
)
def test_address_that_a_person_opens_or_follows_is_answered(headers: list[tuple[bytes, bytes]]) -> None:
    assert refusal("localhost:8080", *headers) is None


def test_form_that_navigates_is_refused() -> None:
    navigation = [
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-mode", b"navigate"),
        (b"sec-fetch-dest", b"document"),
    ]
    assert refusal("localhost:8080", JSON, *navigation, method=b"POST") is not None


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/jsonp",
        "text/plain, application/json",
        "",
        None,
    ],
)
@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"post"])
def test_content_that_a_page_may_send_unasked_is_refused(method: bytes, content_type: str | None) -> None:
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    refused = refusal("localhost", *headers, method=method)
    assert refused is not None
    assert (refused.status, refused.reason) == (415, "content_type")


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
def test_json_is_accepted(content_type: str) -> None:
    assert refusal("localhost", (b"content-type", content_type.encode()), method=b"POST") is None


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.2", "dra-extender", "a.svc", "", None])
def test_only_the_names_of_loopback_are_accepted_where_nothing_else_may_be(host: str | None) -> None:
    guard = BrowserGuard(loopback=True)
    refused = refusal(host, guard=guard)
    assert refused is not None
    assert "expected localhost as host" in refused.sentence
