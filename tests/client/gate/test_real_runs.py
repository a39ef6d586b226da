"""The gate tells real runs of PyTorch apart: the same program passes; one that computes forward twice fails.

TORCH_PYTHON names the interpreter of an environment with torch. The machine must be quiet: the steps are timed.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tracedock.gate.rules import parse_rule
from tracedock.gate.runs import Run
from tracedock.gate.verdicts import Outcome, judge

from tests.client.gate.conftest import RunOf

TORCH_PYTHON = os.environ.get("TORCH_PYTHON", "")
PROGRAM = Path(__file__).with_name("torch_program.py")
RULES = [*map(parse_rule, ("step.median<+20%", "annotation:forward.sum<+50%"))]


@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="TORCH_PYTHON names no interpreter with torch")
@pytest.mark.parametrize(("forwards", "outcome"), [(1, Outcome.PASS), (2, Outcome.REGRESSION)])
def test_real_runs_are_told_apart_twenty_of_twenty_times(
    run_of: RunOf, tmp_path: Path, forwards: int, outcome: Outcome
) -> None:
    def measured(name: str, count: int) -> Run:
        trace = tmp_path / f"{name}.json"
        subprocess.run([TORCH_PYTHON, PROGRAM, trace, "--forwards", str(count)], check=True, capture_output=True)
        events = json.loads(trace.read_text())["traceEvents"]
        return run_of(events)

    outcomes = [judge(RULES, measured("base", 1), measured("other", forwards)).outcome for _ in range(20)]
    assert outcomes == [outcome] * 20
