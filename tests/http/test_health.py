"""Whether the server answers."""

import httpx

from tests.server import Server


def test_a_server_that_is_up_says_so(server: Server) -> None:
    answer = httpx.get(f"{server.url}/healthz", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
