"""Tokens are created, recognised and revoked; the file on disk holds no secret."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.store.tokens import Scope, Tokens
from service.trace.errors import BadTokenName, TokenExists, UnknownToken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tokens.sqlite"


@pytest.fixture
def tokens(path: Path) -> Iterator[Tokens]:
    with closing(Tokens(path)) as open_tokens:
        yield open_tokens


def test_a_token_is_known_by_its_secret_alone(tokens: Tokens) -> None:
    secret = tokens.add("ci", Scope.WRITE)
    [token] = tokens.all()
    assert (token.name, token.scope) == ("ci", Scope.WRITE)
    assert token.is_of(secret)
    for wrong_secret in ("", secret[:-1], secret + "x", secret.swapcase(), "\udc80", "ü"):
        assert not token.is_of(wrong_secret)


def test_secrets_are_unique_and_long(tokens: Tokens) -> None:
    secrets = {tokens.add(f"t{number}", Scope.READ) for number in range(50)}
    assert len(secrets) == 50
    assert min(map(len, secrets)) >= 4 + 256 / 6


def test_token_file_holds_no_secret_and_only_its_owner_has_access(tokens: Tokens, path: Path) -> None:
    secret = tokens.add("ci", Scope.READ)
    files = list(path.parent.glob("tokens.sqlite*"))
    assert files
    for file in files:
        assert file.stat().st_mode & 0o077 == 0, file
        assert secret.encode() not in file.read_bytes()
    assert secret not in repr(tokens.all())
    assert repr(tokens.all()[0].digest) not in repr(tokens.all())


def test_changes_by_another_process_are_seen_at_once(tokens: Tokens, path: Path) -> None:
    def elsewhere(change: str) -> None:
        script = f"from service.store.tokens import *; {change}"
        subprocess.run([sys.executable, "-c", script, path], check=True, timeout=120)

    assert tokens.all() == ()
    elsewhere("import sys; from pathlib import Path; Tokens(Path(sys.argv[1])).add('ci', Scope.READ)")
    assert [token.name for token in tokens.all()] == ["ci"]
    elsewhere("import sys; from pathlib import Path; Tokens(Path(sys.argv[1])).remove('ci')")
    assert tokens.all() == ()


def test_own_changes_are_seen_and_persistent(tokens: Tokens, path: Path) -> None:
    for name in ("b", "a"):
        tokens.add(name, Scope.READ)
        assert name in [token.name for token in tokens.all()]
    tokens.remove("b")
    assert [token.name for token in tokens.all()] == ["a"]
    with closing(Tokens(path)) as other_tokens:
        assert other_tokens.all() == tokens.all()


def test_token_names_are_unique(tokens: Tokens) -> None:
    secret = tokens.add("ci", Scope.READ)
    with pytest.raises(TokenExists, match="ci"):
        tokens.add("ci", Scope.WRITE)
    [token] = tokens.all()
    assert token.is_of(secret)


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a\n", "x" * 65, "ü", "a/b", 'a"'])
def test_a_name_that_would_not_fit_a_line_of_a_log_is_refused(tokens: Tokens, name: str) -> None:
    with pytest.raises(BadTokenName):
        tokens.add(name, Scope.READ)


def test_unknown_token_can_not_be_revoked(tokens: Tokens) -> None:
    with pytest.raises(UnknownToken, match="nobody"):
        tokens.remove("nobody")
