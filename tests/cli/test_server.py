from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import enumerate as threads
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.cli.double import Server


@dataclass
class Finding:
    name: str
    ok: bool
    value: str
    detail: str | None = None


def invoke(*args: str) -> Result:
    return CliRunner().invoke(app, [*args], prog_name="tracedock")


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """Replace a module of the service by a stub with these members."""
    module = ModuleType(name)
    module.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def served_settings(monkeypatch: pytest.MonkeyPatch, server: Server) -> Iterator[list[Any]]:
    """Replace `serve` by a function that is ready at once; yield the settings of each call."""
    calls: list[Any] = []

    def serve(settings: Any, *, on_ready: Callable[[str], None] | None = None) -> None:
        calls.append(settings)
        assert on_ready
        on_ready(server.url)
        for thread in threads():
            if thread.name == "upload":
                thread.join()

    install(monkeypatch, "service.app", serve=serve)
    monkeypatch.setitem(BaseModel.model_config, "defer_build", False)  # so that it is restored
    yield calls
    gc.enable()


def test_serve_overrides_the_environment_with_given_options_only(
    served_settings: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRACEDOCK_PORT", "1234")
    monkeypatch.setenv("TRACEDOCK_HOST", "127.0.0.2")
    assert invoke("serve", "--port", "0", "--data", str(tmp_path), "--perfetto-port", "0").exit_code == 0
    [settings] = served_settings
    assert (settings.host, settings.port, settings.perfetto_port) == ("127.0.0.2", 0, 0)
    assert settings.data == tmp_path
    assert settings.model_fields_set == {"host", "port", "data", "perfetto_port"}


def test_serve_prints_the_url_once_it_is_ready(served_settings: list[Any], server: Server) -> None:
    assert invoke("serve").stdout == f"{server.url}\n"


def test_serve_loads_no_client() -> None:
    program = (
        "import sys\n"
        "import service.app\n"
        "from service.cli.main import main\n"
        "service.app.serve = lambda *_, **__: print({'httpx', 'rich', 'tracedock.client'} & set(sys.modules))\n"
        "sys.argv = ['tracedock', 'serve']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_serve_trace_uploads_the_file_and_prints_the_link_that_opens_it(
    served_settings: list[Any], server: Server, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    result = invoke("serve", "--trace", str(tmp_path / "a.json"))
    assert [t["name"] for t in server.traces] == ["a.json"]
    link = f"{server.url}/api/v1/traces/{server.traces[0]['id']}/perfetto"
    assert result.stdout.splitlines() == [server.url, link]


def test_invalid_setting_is_wrong_usage(served_settings: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEDOCK_PORT", "eighty")
    result = invoke("serve")
    assert result.exit_code == 2
    assert "port" in result.stderr
    assert served_settings == []


def test_serve_on_a_used_port_is_an_error_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(settings: Any, *, on_ready: Callable[[str], None] | None = None) -> None:
        raise OSError(98, "Address already in use")

    install(monkeypatch, "service.app", serve=serve)
    result = invoke("serve")
    assert result.exit_code == 1
    assert "Address already in use" in result.stderr


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_doctor_marks_each_finding_and_fails_when_one_does(
    monkeypatch: pytest.MonkeyPatch, ok: bool, code: int
) -> None:
    findings = [Finding("python", True, "3.11.7"), Finding("engine", ok, "v54.0", "from its package")]
    install(monkeypatch, "service.engine")
    install(monkeypatch, "service.engine.doctor", examine=lambda settings: findings)
    result = invoke("doctor")
    assert result.exit_code == code
    assert result.stdout.splitlines() == [
        "check\tstate\tvalue\tdetail",
        "python\tok\t3.11.7\t\\N",
        f"engine\t{'ok' if ok else 'failed'}\tv54.0\tfrom its package",
    ]


def test_doctor_engine_path_prints_only_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "service.engine")
    install(monkeypatch, "service.engine.trace_processor")
    install(monkeypatch, "service.engine.trace_processor.provision", engine_path=lambda settings: Path("/opt/shell"))
    assert invoke("doctor", "--engine-path").stdout == "/opt/shell\n"
