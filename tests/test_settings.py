"""Settings of the service."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings

PAGE = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
ROWS = re.findall(r"^\| `TRACEDOCK_([A-Z_]+)` \| ?`?([^|`]*?)`? ?\| (.+?) \|$", PAGE, re.MULTILINE)


def test_settings_page_documents_every_setting_and_no_other() -> None:
    documented = [name.lower() for name, _, _ in ROWS]
    assert documented == list(Settings.model_fields)


@pytest.mark.parametrize(("name", "default", "text"), ROWS, ids=lambda value: value if value.isupper() else "")
def test_settings_page_has_default_and_description_of_each_setting(name: str, default: str, text: str) -> None:
    field = Settings.model_fields[name.lower()]
    assert text == field.description
    number = re.fullmatch(r"(\d+) GiB", default)
    if number:
        assert field.default == int(number[1]) << 30
    elif isinstance(field.default, bool):
        assert default == str(field.default).lower()
    elif isinstance(field.default, int | float):
        assert float(default) == field.default
    else:
        assert default == str(field.default or "")


def test_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEDOCK_MAX_ENGINES", "7")
    assert Settings().max_engines == 7
    assert Settings(max_engines=3).max_engines == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "70000"),
        ("token", "short"),
        ("perfetto_port", "-1"),
        ("max_engines", "0"),
        ("query_timeout_s", "0"),
        ("engine_idle_s", "soon"),
    ],
)
def test_invalid_setting_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TRACEDOCK_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


def test_token_is_hidden_and_an_empty_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEDOCK_TOKEN", "0123456789abcdef")
    assert "0123456789abcdef" not in repr(Settings())
    monkeypatch.setenv("TRACEDOCK_TOKEN", "")
    assert Settings().token is None


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc] # the claim
