"""Secrets, and nothing else, are redacted."""

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
    *("sk_live_abcdefghij0123456789", "rk_test_abcdefghij0123456789", "whsec_abcdefghij0123456789"),
    *("pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAw", "dckr_pat_abcdefghijklmnopqrst", "gldt-abcdefghij0123456789"),
    *("ya29.a0AfH6SMBabcdefghijk", "GOCSPX-abcdefghijklmnop", "hvs.CAESIabcdefghijklmnop"),
    *("SG.abcdefghijklmnopqrst.abcdefghijklmnopqrst", "xapp-1-A012345678-abc", "gsk_abcdefghij0123456789"),
    "ASIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_ghi",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAA=\n-----END RSA PRIVATE KEY-----",
]
KEYS = [
    "token", "HF_TOKEN", "hf-token", "accessToken", "password", "db_passwd", "PGPASSWORD", "api_key", "apikey",
    "APIKey", "OPENAI_API_KEY", "x-api-key", "accessKey", "private_key", "secret", "AWS_SECRET_ACCESS_KEY",
    "client-secret", "credential", "credentials", "Authorization", "cookie", "Set-Cookie", "session_key", "WANDB_KEY",
    "pwd", "DB_PWD", "pass", "smtp_pass", "passcode", "s3.key", "storageKey", "aws_key", "gcs.key",
]  # fmt: skip
OTHER_KEYS = [
    "tokenizer", "num_tokens", "max_tokens", "tokens", "key", "keys", "cache_key", "author", "secretary", "keyboard",
    "monkey", "environment_name", "kv_key", "forward_pass", "backwardPass", "bypass", "passes", "compass",
    "pass_name", "Process Group Name", "Sequence number",
]  # fmt: skip
ENVIRONMENTS = ["env", "ENV", "environ", "Environment", "environment_variables", "env-vars", "osEnviron", "os_environ"]


@pytest.mark.parametrize("secret", LOOKS, ids=lambda secret: secret[:6])
def test_secret_forms_are_redacted_anywhere(secret: str) -> None:
    assert redacted_text(secret) == REDACTED
    assert redacted_text(f"push with {secret}, please") == f"push with {REDACTED}, please"
    value = {"a": [f"({secret})", 1, None], secret: None}
    expected = {"a": [f"({REDACTED})", 1, None], REDACTED: None}
    assert redacted(value) == expected
    assert json.loads(redacted_json(json.dumps(value))) == expected
    assert json.loads(redacted_json(json.dumps([json.dumps(value)]))) == [json.dumps(expected)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefghijkl.mn", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ("git clone https://me:pass@host/x.git", "git clone https://[redacted]@host/x.git"),
        ("postgres://me:p%40ss@host:5432/db?a=1", "postgres://[redacted]@host:5432/db?a=1"),
        ("train.py --api-key=abc --lr=0.1", "train.py --api-key=[redacted] --lr=0.1"),
        ("https://host/?access_token=abc&x=1", "https://host/?access_token=[redacted]&x=1"),
        ("{'HF_TOKEN': 'abc', 'HOME': '/me'}", "{'HF_TOKEN': '[redacted]', 'HOME': '/me'}"),
        (f"wandb login {HEX}", "wandb login [redacted]"),
        ("train.py --hub-token abc --lr 0.1", "train.py --hub-token [redacted] --lr 0.1"),
        ("https://h/x?sv=1&sig=ab%2Bc%3D&se=2", "https://h/x?sv=1&sig=[redacted]&se=2"),
        ("https://h/x?X-Amz-Signature=abc&a=b", "https://h/x?X-Amz-Signature=[redacted]&a=b"),
        ("https://h/x?X-Amz-Credential=A/b/c", "https://h/x?X-Amz-Credential=[redacted]"),
        ("Server=db;Uid=me;Pwd=hello;", "Server=db;Uid=me;Pwd=[redacted];"),
        ('["train.py", "--token", "x", "--lr", "1"]', '["train.py", "--token", "[redacted]", "--lr", "1"]'),
        ('"HF_TOKEN": "cut off in the mid', '"HF_TOKEN": "[redacted]"'),
        ('"env": {"HOME": "/home/me", "US', '"env": {"HOME": "[redacted]", "[redacted]"'),
    ],
)
def test_only_the_secret_in_a_text_is_redacted(text: str, expected: str) -> None:
    assert redacted_text(text) == expected
    assert redacted_text(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "aten::_scaled_dot_product_flash_attention", "num_tokens=5", "max_token=128", "task-0123456789abcdef0123",
        "disk-0123456789abcdef0123", "https://host:8080/path@2x.png", f"commit {HEX}", "the bearer of bad news",
        "hf_hub", "basic operations", "ssh://git@host/x.git", "void kernel<sk_8, Key=int>(eyJ)",
        'unexpected token: "x"', "Forward pass", "bypass=hello", "pass=forward", "pass=2", "--pass-through yes",
        "--max-tokens 128", '["--max-token", "128"]', '["--token", "--lr"]', "task_live_0123456789", "sig=short",
    ],
)  # fmt: skip
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize("key", KEYS)
def test_value_of_a_secret_key_is_redacted(key: str) -> None:
    value = {key: "open sesame", "n": {key: ["a", {"b": "c"}], "d": "e"}, "none": {key: None}}
    expected = {key: REDACTED, "n": {key: [REDACTED, {"b": REDACTED}], "d": "e"}, "none": {key: None}}
    assert redacted(value) == expected
    assert json.loads(redacted_json(json.dumps(value))) == expected


@pytest.mark.parametrize("key", [*OTHER_KEYS, "env", "environ"])
def test_value_of_another_key_is_unchanged(key: str) -> None:
    value = {key: "production", "n": {key: 1.5}}
    assert redacted(value) == value
    assert redacted_json(json.dumps(value)) == json.dumps(value)


@pytest.mark.parametrize("key", ENVIRONMENTS)
@pytest.mark.parametrize(
    ("dump", "expected"),
    [
        ({"HOME": "/me", "N": 1, "x": {"y": [None]}}, {"HOME": REDACTED, "N": REDACTED, "x": {"y": [REDACTED]}}),
        (["HOME=/me"], [REDACTED]),
        ("HOME=/me", REDACTED),
        ('{"HOME": "/me"}', REDACTED),
    ],
)
def test_every_value_of_an_environment_is_redacted(key: str, dump: Any, expected: Any) -> None:
    assert redacted({"a": {key: dump}, "b": "c"}) == {"a": {key: expected}, "b": "c"}
    assert json.loads(redacted_json(json.dumps({"a": {key: dump}, "b": "c"}))) == {"a": {key: expected}, "b": "c"}


def test_number_is_redacted_as_a_password_but_not_as_a_token() -> None:
    assert redacted({"password": 1234, "token": 1234}) == {"password": REDACTED, "token": 1234}
    assert redacted_json('{"password": 1.50, "token": 1.50}') == f'{{"password": "{REDACTED}", "token": 1.50}}'


def test_text_around_redactions_is_unchanged_to_the_byte() -> None:
    text = '{ "a":1.50,"b" : [1e5, -0.0, 1180591620717411303424, NaN],\t"\\u0061": "\\/\\ud800\\u00e9",\n"a":{}} '
    assert redacted_json(text) == text
    assert redacted_json(text[:-2] + ',"HF_TOKEN" : "x"}') == text[:-2] + f',"HF_TOKEN" : "{REDACTED}"}}'


def test_escaped_secret_is_redacted() -> None:
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
def test_text_and_value_are_redacted_alike_and_suspect_matches_changes(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    result = redacted_json(text)
    assert json.loads(result) == json.loads(json.dumps(redacted(value)))
    assert redacted_json(result) == result
    if result != text:
        assert re.search(SUSPECT, text)
        assert duckdb.execute("SELECT regexp_matches(?, ?)", [text, SUSPECT]).fetchall() == [(True,)]


@given(st.text(alphabet="\"\\{}[]:, a='\ud800eyJ", max_size=30))
def test_redaction_accepts_any_text(text: str) -> None:
    redacted_text(text)
    redacted_json(text)


@pytest.mark.parametrize(
    "piece",
    ['"', "\\", '"\\', "{", '[{"a":', "eyJ-", "://", ":", "sk-", "bearer ", "wandb ", "token'", "token=", '"env":'],
)
def test_redaction_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    redacted_text(f'"k": ://{piece * (200_000 // len(piece))}')
    assert time.process_time() - began < 10  # quadratic time would take minutes


@pytest.mark.parametrize("flag", ["--token", "--hf-token", "-password", "--api_key", "--s3.key", "--db-pass"])
def test_value_after_a_secret_flag_is_redacted(flag: str) -> None:
    value = {"argv": ["train.py", flag, "open sesame", "--lr", "0.1", ["x"]]}
    expected = {"argv": ["train.py", flag, REDACTED, "--lr", "0.1", ["x"]]}
    assert redacted(value) == expected
    assert json.loads(redacted_json(json.dumps(value))) == expected
    assert re.search(SUSPECT, json.dumps(value))


@pytest.mark.parametrize("key", ["launch_env", "workerEnv", "runtime.environ"])
def test_environment_dump_is_recognised_by_the_last_word_of_its_key(key: str) -> None:
    value = {key: {"HOME": "/me"}}
    assert redacted(value) == {key: {"HOME": REDACTED}}
    assert json.loads(redacted_json(json.dumps(value))) == {key: {"HOME": REDACTED}}


@pytest.mark.parametrize("value", ["forward", "backward", "bwd", "prefill", "2", 3, None, True])
def test_pass_of_a_model_is_not_a_password(value: object) -> None:
    assert redacted({"pass": value}) == {"pass": value}
    assert redacted_json(json.dumps({"pass": value})) == json.dumps({"pass": value})
