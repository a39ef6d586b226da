"""The tus client for browsers uploads a real trace, stops, and resumes."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.conftest import SHARED, needs_shared
from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.npm_scripts import TUS

CHUNK = 100_000
UPLOAD = """
(input, [endpoint, chunkSize, stops]) => new Promise((resolve, reject) => {
  const file = input.files[0], offsets = [];
  const upload = new tus.Upload(file, {
    endpoint, chunkSize, metadata: { filename: file.name }, onError: reject,
    onBeforeRequest: (request) => offsets.push(request.getHeader("Upload-Offset") ?? null),
    onChunkComplete: (_, accepted) => {
      if (stops && accepted >= 3 * chunkSize) upload.abort().then(() => resolve({ offsets, url: upload.url }));
    },
    onSuccess: () => resolve({ offsets, url: upload.url }),
  });
  upload.findPreviousUploads().then(([before]) => {
    if (before) upload.resumeFromPreviousUpload(before);
    upload.start();
  });
})
"""


@needs_shared
@pytest.mark.skipif(not TUS.path.exists(), reason=TUS.reason_to_skip)
def test_tus_js_client_uploads_stops_and_resumes(page: Page, start_server: Callable[..., Server]) -> None:
    server, path = start_server(), SHARED / "a100_nccl_3_steps.pt.trace.json.gz"

    def upload(*, stops: bool) -> dict[str, Any]:
        page.goto(server.url)
        page.evaluate(TUS.path.read_text())
        page.evaluate("document.body.append(Object.assign(document.createElement('input'), {type: 'file', id: 'own'}))")
        page.locator("#own").set_input_files(path)
        done: dict[str, Any] = page.locator("#own").evaluate(UPLOAD, [f"{server.url}/api/v1/uploads", CHUNK, stops])
        return done

    first = upload(stops=True)
    assert first["offsets"] == [None, "0", f"{CHUNK}", f"{2 * CHUNK}"]
    assert server.api.get("/traces").json()["traces"] == []
    assert server.api.get(first["url"]).json()["offset"] == 3 * CHUNK

    second = upload(stops=False)

    assert second["url"] == first["url"]
    assert second["offsets"][:2] == [None, f"{3 * CHUNK}"]
    trace = server.api.get(
        f"/traces/{server.api.get(first['url']).json()['trace']}", params={"wait": PATIENCE_S}
    ).json()
    assert (trace["name"], trace["state"]) == (path.name, "ready")
    assert trace["sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()
