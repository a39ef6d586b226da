"""The commands `token`, and the token that commands send."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tracedock.client import Client
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.store.tokens import Scope, Tokens
from tests.cli.conftest import Run
from tests.cli.double import Server

SECRET = "tdk_not-to-be-seen"


def token(data: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["token", *args, "--data", str(data)], prog_name="tracedock")


def test_token_add_works_without_a_server_and_prints_the_token(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    result = token(data, "add", "ci", "--scope", "write")
    assert (result.exit_code, result.stderr) == (0, "")
    with closing(Tokens(data / "tokens.sqlite")) as tokens:
        [stored] = tokens.all()
    assert stored.is_of(result.stdout.strip())
    assert (stored.name, stored.scope) == ("ci", Scope.WRITE)


def test_token_ls_lists_tokens_without_secrets(tmp_path: Path) -> None:
    secrets = [token(tmp_path, "add", name, "--scope", name).stdout.strip() for name in ("write", "read")]
    listed = token(tmp_path, "ls").stdout
    assert [line.split("\t")[:2] for line in listed.splitlines()] == [
        ["name", "scope"], ["read", "read"], ["write", "write"],
    ]  # fmt: skip
    assert not [secret for secret in secrets if secret in listed]


def test_token_rm_revokes_a_token(tmp_path: Path) -> None:
    token(tmp_path, "add", "ci", "--scope", "read")
    assert token(tmp_path, "rm", "ci").exit_code == 0
    assert token(tmp_path, "ls").stdout.splitlines() == ["name\tscope\tcreated_at"]
    noted = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(line["who"], line["did"], line["token"]) for line in noted] == [
        ("local", "add token", "ci"), ("local", "remove token", "ci"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["add", "ci", "--scope", "read"], "token_exists"),
        (["add", "no name", "--scope", "read"], "bad_token_name"),
        (["rm", "nobody"], "unknown_token"),
    ],
)
def test_refused_token_change_is_reported_and_not_logged(tmp_path: Path, args: list[str], code: str) -> None:
    token(tmp_path, "add", "ci", "--scope", "read")
    before = (tmp_path / "audit.log").read_text()
    result = token(tmp_path, *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert code in result.stderr
    assert (tmp_path / "audit.log").read_text() == before


@pytest.mark.parametrize("args", [["add", "ci"], ["add", "ci", "--scope", "all"], ["add"], []])
def test_token_add_without_a_scope_is_refused(tmp_path: Path, args: list[str]) -> None:
    assert token(tmp_path, *args).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_token_of_the_environment_is_sent(run: Run, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run("ls")
    monkeypatch.setenv("TRACEDOCK_TOKEN", SECRET)
    run("ls")
    run("--token", "another", "ls")
    with Client(server.url) as client:
        list(client.traces())
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [None, f"Bearer {SECRET}", "Bearer another", f"Bearer {SECRET}"]


def test_token_is_never_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEDOCK_TOKEN", f"{SECRET}\n{SECRET}")
    refused = run("ls")
    assert refused.exit_code == 2
    monkeypatch.setenv("TRACEDOCK_TOKEN", SECRET)
    shown = [run(*args) for args in (["--help"], ["ls", "--help"], ["show", "nothing"], ["serve", "--port", "x"])]
    for result in (refused, *shown):
        assert SECRET not in result.output
