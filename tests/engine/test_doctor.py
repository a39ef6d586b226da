"""The diagnosis of an installation."""

from pathlib import Path

import pytest

from service.engine import doctor
from service.engine.doctor import Finding, examine
from service.engine.trace_processor import protections
from service.settings import Settings
from tests.engine.conftest import DOUBLES


def findings_of(**settings: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(Settings(**settings))}  # type: ignore[arg-type] # by name


def test_findings_of_a_complete_installation_are_ok(tmp_path: Path) -> None:
    findings = findings_of(data=tmp_path / "not" / "yet")
    assert all(finding.ok for finding in findings.values()), findings
    assert findings["engine version"].value.startswith("Perfetto v54.0")
    assert findings["one-event trace"].value == "loads, 1 slice"
    assert findings["engine guards"].value.startswith("Landlock ABI ")
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("double", "detail"),
    [("failing", "the moon is in the way"), ("garbled", "can't be read"), ("mute", "No answer in 0.5 s.")],
)
def test_engine_that_does_not_work_is_reported(
    double: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if double == "mute":
        monkeypatch.setattr(doctor, "_TRIAL_TIMEOUT_S", 0.5)
    findings = findings_of(engine=DOUBLES / double, engine_sandbox="off", data=tmp_path)
    assert not findings["one-event trace"].ok
    assert detail in (findings["one-event trace"].detail or "")


def test_missing_protections_are_reported_if_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        protections,
        "available",
        lambda: protections.Protections(limits=True, no_new_privs=True, landlock=0, seccomp=True),
    )
    finding = findings_of(engine_sandbox="required", data=tmp_path)["engine guards"]
    assert (finding.ok, finding.value) == (False, "missing")
    assert "lacks: Landlock" in (finding.detail or "")


def test_missing_engine_is_reported(tmp_path: Path) -> None:
    findings = findings_of(engine=tmp_path / "nowhere", ui=tmp_path, data=tmp_path)
    assert not findings["engine"].ok
    assert not findings["ui"].ok
    assert "one-event trace" not in findings


def test_read_only_data_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not findings_of(data=tmp_path / "file")["data folder"].ok
