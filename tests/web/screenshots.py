"""Screenshots of the pages for the documents: ``python -m tests.web.screenshots``."""

import json
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.conftest import DATA
from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.conftest import CHROMIUM, SWITCHES
from tests.web.viewer import Viewer

DOCS = Path(__file__).parents[2] / "docs"
WIDTH = 1280
QUERY = """INCLUDE PERFETTO MODULE torch.kernels;
SELECT op_name, count(*) AS n, sum(dur) AS dur_ns
FROM torch_kernel
GROUP BY op_name
ORDER BY dur_ns DESC"""


def take(page: Page, name: str, height: int) -> None:
    """Save the upper part of a page as an image of the documents."""
    page.wait_for_load_state("networkidle")
    page.screenshot(path=DOCS / "images" / f"{name}.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> None:
    """Upload the run that ships with the project, and take the images of its pages."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        server = Server(Path(scratch, "data")).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        try:
            traces = [
                server.api.put(
                    f"/traces/{path.name}", params={"group": "gpt", "wait": PATIENCE_S}, content=path.read_bytes()
                ).json()
                for path in sorted((DOCS / "examples").glob("*.json.gz"))
            ]
            for path in sorted(DATA.glob("cpu_[st]*.json.gz")):
                server.upload(path)
            page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
            page.goto(f"{server.url}/?open={traces[0]['group']['id']}&sort=size")
            page.get_by_test_id("rank-row").first.wait_for()
            take(page, "library", 530)
            page.goto(f"{server.url}/traces/{traces[0]['id']}")
            page.get_by_test_id("chart-verdict").wait_for()
            take(page, "trace", 1000)
            page.goto(f"{server.url}/groups/{traces[0]['group']['id']}")
            page.get_by_test_id("chart-run-steps").wait_for()
            take(page, "run", 900)
            page.goto(f"{server.url}/traces/{traces[0]['id']}/sql")
            page.get_by_test_id("sql-input").fill(QUERY)
            page.get_by_test_id("sql-run").click()
            page.get_by_test_id("chart-query").wait_for()
            take(page, "sql", 900)
            selection = json.dumps({"steps": [11]})
            viewer = Viewer.open(page, f"{server.url}/api/v1/traces/{traces[0]['id']}/perfetto?selection={selection}")
            viewer.expect_drawn("stream 20", 0.2)
            take(page, "perfetto", 700)
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main()
