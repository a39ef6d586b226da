"""Requests that schemathesis generates from the API's description find no bug and no undocumented response."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import openapi
from tests.conftest import DATA
from tests.docs.pages import ROOT
from tests.server import Server

pytestmark = pytest.mark.system

CHECKS = "not_a_server_error,status_code_conformance"
WAIT_MAX_S = 0.1


def described(server: Server) -> dict[str, Any]:
    """The API's description, narrowed so that most ids exist and no request waits for long."""
    description = openapi.resolved(openapi.document_of(server))
    examples = {
        "trace_id": [trace["id"] for trace in server.api.get("/traces").json()["traces"]],
        "group_id": [group["id"] for group in server.api.get("/groups").json()["groups"]],
    }
    for path in description["paths"].values():
        for method, operation in path.items():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in {"wait", "timeout_s"}:
                    parameter["schema"] = {"type": "number", "minimum": 0, "maximum": WAIT_MAX_S}
                elif parameter["name"] in examples and method != "delete":
                    parameter["schema"] = {"type": "string", "enum": examples[parameter["name"]]}
    return description


def fuzz(server: Server, folder: Path, examples: int, phases: str) -> None:
    """Send generated requests; fail with the report of schemathesis."""
    traces = [server.upload(DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz")["id"] for rank in (0, 1)]
    server.api.post("/groups", json={"name": "run", "traces": traces}).raise_for_status()
    (folder / "api.json").write_text(json.dumps(described(server)))
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", str(folder / "api.json"), "--url", server.url,
        "--checks", CHECKS, "--phases", phases, "--max-examples", str(examples), "--seed", "17",
        "--continue-on-failure", "--warnings", "off", "--no-color", "--request-timeout", "60",
    ]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.http.schemathesis_hooks"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert run.returncode == 0, run.stdout[-20_000:]


@pytest.mark.timeout(900)
def test_generated_requests_get_described_answers(start_server: Callable[..., Server], tmp_path: Path) -> None:
    fuzz(start_server(), tmp_path, examples=3, phases="fuzzing")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_generated_requests_get_described_answers(start_server: Callable[..., Server], tmp_path: Path) -> None:
    fuzz(start_server(), tmp_path, examples=50, phases="coverage,fuzzing")
