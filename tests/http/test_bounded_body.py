"""Bodies that are read into memory are bounded."""

from collections.abc import Iterator

from service.http.bounded_body import BODY_MAX
from tests.server import Server

BLOCK = b"x" * (1 << 20)


def test_query_body_beyond_the_bound_is_refused(server: Server, trace: str) -> None:
    def blocks() -> Iterator[bytes]:
        for _ in range(BODY_MAX // len(BLOCK) + 2):
            yield BLOCK

    for content in (BLOCK * (BODY_MAX // len(BLOCK) + 2), blocks()):
        answer = server.api.post(
            f"/traces/{trace}/query", content=content, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert answer.headers["content-type"] == "application/problem+json"


def test_upload_body_may_exceed_the_bound(server: Server) -> None:
    answer = server.api.put("/traces/blank", content=b" " * (BODY_MAX + 1), params={"wait": 20})
    assert answer.json()["size"] == BODY_MAX + 1
    server.api.delete(f"/traces/{answer.json()['id']}")
