"""Secrets are hidden where they stand, and nothing else is."""

import json
import re
import time
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.secrets import REDACTED, SUSPECT, redacted, redacted_json, redacted_text

HEX = "0123456789abcdef0123456789abcdef01234567"
LOOKS = [
    "hf_abcdefghijklmnopqrstuvwxyz01234567",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "gho_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "glpat-abcdefghij0123456789",
    "sk-abcdefghijklmnopqrstuvwxyz0123456789",
    "sk-proj-abcdefgh_ijklmnop-qrstuvwxyz012345",
    "xoxb-1234567890-abcdefghij",
    "AKIAABCDEFGHIJKLMNOP",
    "ASIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_ghi",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAA=\n-----END RSA PRIVATE KEY-----",
]
KEYS = [
    "token", "HF_TOKEN", "hf-token", "accessToken", "password", "db_passwd", "PGPASSWORD", "api_key", "apikey",
    "APIKey", "OPENAI_API_KEY", "x-api-key", "accessKey", "private_key", "secret", "AWS_SECRET_ACCESS_KEY",
    "client-secret", "credential", "credentials", "Authorization", "cookie", "Set-Cookie", "session_key", "WANDB_KEY",
]  # fmt: skip
OTHER_KEYS = [
    "tokenizer", "num_tokens", "max_tokens", "tokens", "key", "keys", "cache_key", "author", "secretary", "keyboard",
    "monkey", "environment_name", "Process Group Name", "Sequence number",
]  # fmt: skip
ENVIRONMENTS = ["env", "ENV", "environ", "Environment", "environment_variables", "env-vars", "osEnviron", "os_environ"]


@pytest.mark.parametrize("secret", LOOKS, ids=lambda secret: secret[:6])
def test_what_looks_like_a_secret_is_hidden_wherever_it_stands(secret: str) -> None:
    assert redacted_text(secret) == REDACTED
    assert redacted_text(f"push with {secret}, please") == f"push with {REDACTED}, please"
    value = {"a": [f"({secret})", 1, None], secret: None}
    hidden = {"a": [f"({REDACTED})", 1, None], REDACTED: None}
    assert redacted(value) == hidden
    assert json.loads(redacted_json(json.dumps(value))) == hidden
    assert json.loads(redacted_json(json.dumps([json.dumps(value)]))) == [json.dumps(hidden)]


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abcdefghijkl.mn", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ("git clone https://me:pass@host/x.git", "git clone https://[redacted]@host/x.git"),
        ("postgres://me:p%40ss@host:5432/db?a=1", "postgres://[redacted]@host:5432/db?a=1"),
        ("train.py --api-key=abc --lr=0.1", "train.py --api-key=[redacted] --lr=0.1"),
        ("https://host/?access_token=abc&x=1", "https://host/?access_token=[redacted]&x=1"),
        ("{'HF_TOKEN': 'abc', 'HOME': '/me'}", "{'HF_TOKEN': '[redacted]', 'HOME': '/me'}"),
        (f"wandb login {HEX}", "wandb login [redacted]"),
        ('"HF_TOKEN": "cut off in the mid', '"HF_TOKEN": "[redacted]"'),
        ('"env": {"HOME": "/home/me", "US', '"env": {"HOME": "[redacted]", "[redacted]"'),
    ],
)
def test_of_a_longer_text_only_the_secret_is_hidden(text: str, hidden: str) -> None:
    assert redacted_text(text) == hidden
    assert redacted_text(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "aten::_scaled_dot_product_flash_attention", "num_tokens=5", "max_token=128", "task-0123456789abcdef0123",
        "disk-0123456789abcdef0123", "https://host:8080/path@2x.png", f"commit {HEX}", "the bearer of bad news",
        "hf_hub", "basic operations", "ssh://git@host/x.git", "void kernel<sk_8, Key=int>(eyJ)",
        'unexpected token: "x"',
    ],
)  # fmt: skip
def test_other_texts_stay(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize("key", KEYS)
def test_the_value_of_a_key_that_names_a_secret_is_hidden(key: str) -> None:
    value = {key: "open sesame", "n": {key: ["a", {"b": "c"}], "d": "e"}, "none": {key: None}}
    hidden = {key: REDACTED, "n": {key: [REDACTED, {"b": REDACTED}], "d": "e"}, "none": {key: None}}
    assert redacted(value) == hidden
    assert json.loads(redacted_json(json.dumps(value))) == hidden


@pytest.mark.parametrize("key", [*OTHER_KEYS, "env", "environ"])
def test_the_value_of_another_key_stays(key: str) -> None:
    value = {key: "production", "n": {key: 1.5}}
    assert redacted(value) == value
    assert redacted_json(json.dumps(value)) == json.dumps(value)


@pytest.mark.parametrize("key", ENVIRONMENTS)
@pytest.mark.parametrize(
    ("dump", "hidden"),
    [
        ({"HOME": "/me", "N": 1, "x": {"y": [None]}}, {"HOME": REDACTED, "N": REDACTED, "x": {"y": [REDACTED]}}),
        (["HOME=/me"], [REDACTED]),
        ("HOME=/me", REDACTED),
        ('{"HOME": "/me"}', REDACTED),
    ],
)
def test_every_value_of_an_environment_is_hidden(key: str, dump: Any, hidden: Any) -> None:
    assert redacted({"a": {key: dump}, "b": "c"}) == {"a": {key: hidden}, "b": "c"}
    assert json.loads(redacted_json(json.dumps({"a": {key: dump}, "b": "c"}))) == {"a": {key: hidden}, "b": "c"}


def test_a_number_is_hidden_as_a_password_but_not_as_a_token_which_may_be_a_models() -> None:
    assert redacted({"password": 1234, "token": 1234}) == {"password": REDACTED, "token": 1234}
    assert redacted_json('{"password": 1.50, "token": 1.50}') == f'{{"password": "{REDACTED}", "token": 1.50}}'


def test_what_is_not_hidden_stays_to_the_byte() -> None:
    text = '{ "a":1.50,"b" : [1e5, -0.0, 1180591620717411303424, NaN],\t"\\u0061": "\\/\\ud800\\u00e9",\n"a":{}} '
    assert redacted_json(text) == text
    assert redacted_json(text[:-2] + ',"HF_TOKEN" : "x"}') == text[:-2] + f',"HF_TOKEN" : "{REDACTED}"}}'


def test_an_escaped_secret_is_hidden_too() -> None:
    assert redacted_json('{"\\u0070assword": "x", "u": "https:\\/\\/me:pass\\u0040host"}') == (
        f'{{"\\u0070assword": "{REDACTED}", "u": "https://{REDACTED}@host"}}'
    )


words = st.sampled_from([*LOOKS, *KEYS, *OTHER_KEYS, *ENVIRONMENTS, "https://me:pass@host", f"wandb {HEX}"])
strings = words | st.tuples(words, words).map("=".join) | st.text(max_size=5)
values = st.recursive(
    strings | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
)


@given(values, st.booleans())
def test_text_and_value_are_redacted_alike_and_what_changes_is_suspect(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    hidden = redacted_json(text)
    assert json.loads(hidden) == json.loads(json.dumps(redacted(value)))
    assert redacted_json(hidden) == hidden
    if hidden != text:
        assert re.search(SUSPECT, text)
        assert duckdb.execute("SELECT regexp_matches(?, ?)", [text, SUSPECT]).fetchall() == [(True,)]


@given(st.text(alphabet="\"\\{}[]:, a='\ud800eyJ", max_size=30))
def test_any_text_can_be_redacted(text: str) -> None:
    redacted_text(text)
    redacted_json(text)


@pytest.mark.parametrize(
    "piece",
    ['"', "\\", '"\\', "{", '[{"a":', "eyJ-", "://", ":", "sk-", "bearer ", "wandb ", "token'", "token=", '"env":'],
)
def test_no_text_takes_more_than_its_length_of_time(piece: str) -> None:
    began = time.process_time()
    redacted_text(f'"k": ://{piece * (200_000 // len(piece))}')
    assert time.process_time() - began < 10  # what grows with the square takes minutes
