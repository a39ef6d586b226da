"""An agent finds the late rank of a run of eight ranks, with what the tools return and nothing else."""

import re
from collections.abc import Iterator

import pytest

from tests.agents.agent import TRANSPORTS, Agent, Transport, over_http, table, talk
from tests.conftest import SHARED, needs_shared
from tests.docs.pages import EXAMPLES
from tests.server import Server
from tests.waiting import PATIENCE_S

CALLS_MAX, BYTES_MAX = 4, 20_000
RUN = "dlrm"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the run."""
    server = Server(tmp_path_factory.mktemp("dlrm") / "data").start()
    paths = sorted((SHARED / "dlrm_8_ranks").iterdir()) + sorted(EXAMPLES.glob("*.json.gz"))
    for path in paths:
        group = RUN if path.parent.name.startswith("dlrm") else "gpt"
        server.api.put(f"/traces/{path.name}", params={"group": group, "wait": PATIENCE_S}, content=path.read_bytes())
    yield server
    assert server.stop() == 0


async def late_rank(agent: Agent) -> str:
    """Return the late rank: `list` names the run, `describe` the analysis, and `analyse` the rank."""
    runs = table(await agent.call("list", kind="run"), "runs and traces")
    (target,) = [row["id"] for row in runs if row["ranks"] == "8"]
    described = await agent.call("describe", target=target)
    assert "collectives" in described
    ranks = table(await agent.call("analyse", target=target, analysis="collectives", table="ranks"), "ranks")
    waited_for = max(ranks, key=lambda row: int(row["waited_for_ns"]))
    advised = re.findall(r"late_rank \[rank (\d+)\]", described)
    assert advised in ([], [waited_for["rank"]])
    return waited_for["rank"]


@needs_shared
@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
def test_agent_finds_the_late_rank_in_few_calls_and_bytes(transport: Transport, run: Server) -> None:
    async def conversation(agent: Agent) -> tuple[str, int, int]:
        return await late_rank(agent), agent.calls, agent.bytes

    rank, calls, size = talk(transport(run), conversation)
    (group,) = run.api.get("/groups", params={"name": RUN}).json()["groups"]
    answer = run.api.get(f"/groups/{group['id']}/analysis/collectives", params={"table": "ranks"}).json()
    names = [column["name"] for column in answer["tables"]["ranks"]["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["tables"]["ranks"]["rows"]]
    assert rank == str(max(rows, key=lambda row: row["waited_for_ns"])["rank"])
    assert calls <= CALLS_MAX
    assert size <= BYTES_MAX, f"{calls} calls, {size} bytes"


def test_agent_finds_the_rank_whose_loader_is_slow_in_the_examples(server: Server) -> None:
    for path in sorted(EXAMPLES.glob("*.json.gz")):
        server.api.put(f"/traces/{path.name}", params={"group": "late", "wait": PATIENCE_S}, content=path.read_bytes())

    async def conversation(agent: Agent) -> tuple[list[str], int]:
        return re.findall(r"dataloader \[rank (\d+)\]", await agent.call("describe", target="late")), agent.bytes

    ranks, size = talk(over_http(server), conversation)
    assert ranks == ["1"]
    assert size <= BYTES_MAX
