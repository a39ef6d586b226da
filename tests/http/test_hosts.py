"""The host names that a server accepts, and the origins of pages that may write."""

from contextlib import nullcontext

import pytest
from starlette.requests import HTTPConnection

from service.http.hosts import Hosts, host_name, is_loopback
from service.settings import Settings
from service.trace.errors import BadOrigin, WrongHost, WrongOrigin


def connection(**headers: str) -> HTTPConnection:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8700", "localhost"),
        ("localhost.:8700", "localhost"),
        ("[::1]:8700", "[::1]"),
        ("[::1]", "[::1]"),
        ("127.0.0.1:", "127.0.0.1"),
        ("::1", ""),
        ("", ""),
        ("localhost:8700@evil.example", ""),
        ("localhost:80, evil.example", ""),
        ("local host", ""),
    ],
)
def test_host_name_is_parsed_from_a_host_field(field: str, name: str) -> None:
    assert host_name(field) == name


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.7", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_addresses_are_recognised(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize(
    ("host", "field", "passes"),
    [
        ("127.0.0.1", "127.0.0.1:8700", True),
        ("127.0.0.1", "localhost:1", True),
        ("127.0.0.1", "[::1]:8700", True),
        ("127.0.0.1", "traces.example", True),  # allowed by the setting
        ("127.0.0.1", "evil.example:8700", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "10.0.0.7:8700", False),
        ("127.0.0.1", "", False),
        ("::1", "[::1]:8700", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("0.0.0.0", "10.0.0.7:8700", True),  # a page at an address of this machine can only be the server's own
        ("0.0.0.0", "[fe80::1]:8700", True),
        ("0.0.0.0", "evil.example", False),
        ("node7", "node7:8700", True),
    ],
)
def test_only_a_request_for_this_server_passes(host: str, field: str, passes: bool) -> None:
    hosts = Hosts(Settings(host=host, allowed_hosts="traces.example, other.example:8700"))
    with nullcontext() if passes else pytest.raises(WrongHost):
        hosts.check(connection(host=field), safe=True)


def test_request_with_two_hosts_or_none_is_refused() -> None:
    hosts = Hosts(Settings())
    twice = HTTPConnection({"type": "http", "headers": [(b"host", b"localhost"), (b"host", b"localhost")]})
    for request in (connection(), twice):
        with pytest.raises(WrongHost):
            hosts.check(request, safe=True)


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),  # curl
        ({"origin": "http://localhost:8700"}, True),
        ({"origin": "https://localhost:8700"}, True),  # behind a proxy that ends TLS
        ({"origin": "https://traces.example"}, True),  # allowed by the setting
        ({"origin": "https://traces.example", "sec_fetch_site": "cross-site"}, True),
        ({"origin": "http://localhost:3000", "sec_fetch_site": "same-site"}, False),
        ({"origin": "http://localhost"}, False),
        ({"origin": "http://127.0.0.1:8700"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"origin": "http://["}, False),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "none"}, True),
    ],
)
def test_only_own_pages_may_send_unsafe_requests(headers: dict[str, str], own: bool) -> None:
    hosts = Hosts(Settings(allowed_origins="https://Traces.example/"))
    request = connection(host="localhost:8700", **headers)
    hosts.check(request, safe=True)
    with nullcontext() if own else pytest.raises(WrongOrigin):
        hosts.check(request, safe=False)


@pytest.mark.parametrize("setting", ["*", "traces.example", "https://a.example/path", "https://a.example, null"])
def test_invalid_allowed_origin_is_refused(setting: str) -> None:
    with pytest.raises(BadOrigin, match="not an origin"):
        Hosts(Settings(allowed_origins=setting))
