"""Redaction of secrets in traces.

Four signs identify a secret: it is in the dump of an environment (``env``, ``launch_env``…), its key names a secret
(``api_key``, ``HF_TOKEN``…), the preceding flag does (``["--token", "…"]``), or it has the form of one (``hf_…``,
``AKIA…``, ``https://user:password@…``, ``?sig=…``). A secret becomes ``[redacted]``; all other text stays the same to
the byte.
"""

import json
import re
from enum import IntEnum
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"

SUSPECT = (
    r"(?i)hf_|gh[oprsu]_|github_pat_|glpat-|sk-|xox[a-z]-|a[ks]ia[a-z0-9]{16}|nvapi-|aiza|npm_|eyj|:\\?/\\?/[^\s/]*@"
    r"|authorization|bearer|cookie|credential|env|jwt|key|pass|pwd|secret|token|wandb|\\u00[2-7]"
    r"|[prs]k_(?:live|test)_|whsec_|pypi-|dckr_|gl[a-z]{2,5}-|ya29|gocspx|sg\.|dop_v1|shp|xapp-|hvs\.|r8_|gsk_|lsv2"
    r"|api_org|dapi|rubygems|sig=|signature"
)
"""Pattern, for RE2 and Python, that matches every JSON text that `redacted_json` changes, and few others."""


class Hidden(IntEnum):
    """Values that are hidden below a key; each level includes the previous ones."""

    SECRETS = 0  # strings that have the form of a secret
    STRINGS = 1
    NUMBERS = 2
    ALL = 3


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ENVIRONMENT_KEY = re.compile("(?:[a-z0-9_]*_)?(?:env|environ|environment|environment_variables|env_vars)")
_DUMP = re.compile(r"\s*[{\[]|.*=")  # unlike `"env": "production"`
_SECRET_KEY = re.compile(
    r"_(?:[a-z]*passw(?:or)?ds?|passphrase|secrets?|credentials?|authorization|cookies?|jwt|bearer|apikeys?"
    r"|(?:access|api|auth|bearer|refresh|session)_?tokens?"
    r"|(?:access|account|api|auth|encryption|master|private|secret|session|signing|ssh|wandb)_?keys?"
    r"|(?:aws|azure|blob|bucket|client|deploy|gcp|gcs|hf|hmac|license|minio|openai|rsa|s_3|service|shared|storage)_keys?)_"
)
_PASS_KEY = re.compile(r"(?:_|_[a-z0-9_]*_)(?:pwd|passcode|(?<!backward_)(?<!bwd_)(?<!forward_)(?<!fwd_)pass)_$")
_WORDS_OF_PASSES = r"(?:forward|backward|fwd|bwd|prefill|decode|train|eval|true|false|yes|no|both|none|[\d.]+)"
_NOT_PASSWORD = re.compile(f"(?i){_WORDS_OF_PASSES}?")
"""Values of a key ``pass`` that are not a password, but a pass of a model or a compiler."""
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_FLAG_MAX = 100
_NUMBER = re.compile(r"-?[\d.]+")
_TOKEN_KEY = re.compile("_token_")  # numbers stay visible: they may be a language model's tokens

_ISSUED = (  # tokens that begin with a prefix of their issuer
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|gl(?:pat|ptt|dt|rt|cbt|ft|soat|imt|agent)-[\w-]{12,}|[prs]k_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[\w+/=-]{16,}"
    r"|pypi-[\w-]{16,}|dckr_[op]at_[\w-]{16,}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|dop_v1_[a-f0-9]{32,}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}|xapp-\d-[\w-]{8,}|hvs\.[\w-]{20,}|r8_[A-Za-z0-9]{30,}"
    r"|gsk_[A-Za-z0-9]{20,}|lsv2_(?:pt|sk)_[\w-]{16,}|api_org_[A-Za-z]{20,}|dapi[a-f0-9]{32}|rubygems_[a-f0-9]{32,}"
    r"|sk-(?=[\w-]{0,60}\d)[\w-]{16,}|xox[a-z]-[\w-]{8,}|A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|nvapi-[\w-]{16,}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36})"
)
_NAMES = r"token|secret|passw(?:or)?d|passphrase|credentials?|(?:access|account|api|auth|private|session)[_-]?key"
_PATTERNS = {
    re.compile(pattern): replacement
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", REDACTED),
        (_ISSUED, REDACTED),
        (r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*", REDACTED),
        (r"(?<=://)[^\s/?#:@\"']*:[^\s/?#\"']*@", f"{REDACTED}@"),
        (r"(?i)\b(bearer\s+)[\w.~+/=-]{8,}", rf"\1{REDACTED}"),
        (r"(?i)(authorization\W{1,4}basic\s+)[\w+/=-]+", rf"\1{REDACTED}"),
        (r"(?i)(\bwandb[ \w]{0,30}[:= \"']{0,4})[0-9a-f]{40}\b", rf"\1{REDACTED}"),
        (
            (
                r"(?i)([?&;](?:sig|signature|key|x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid)=)"
                r"(?!\[redacted])[^\s\"'&#]+"
            ),
            rf"\1{REDACTED}",
        ),
        (r"(?i)(\bsig=)(?!\[redacted])[\w%+/=-]{16,}", rf"\1{REDACTED}"),
        (
            (
                rf"(?i)((?<![\w-])--?(?:[a-z0-9]+[_.-]){{0,4}}(?:{_NAMES}|pwd|pass)[ \t]+[\"']?)"
                r"(?!-|\d+\b|\[redacted])[^\s\"']+"
            ),
            rf"\1{REDACTED}",
        ),
        (
            rf"(?i)((?<![a-z])(?:pwd|pass)=[\"']?)(?!{_WORDS_OF_PASSES}(?![\w-])|\[redacted])[^\s\"'&,;)\]}}]+",
            rf"\1{REDACTED}",
        ),
        # as arguments, `--password=…` or `?access_token=…`, and as in Python's repr, `'token': '…'`
        (rf"(?i)((?:{_NAMES})=[\"']?)(?!\d+\b|\[redacted])[^\s\"'&,;)\]}}]+", rf"\1{REDACTED}"),
        (rf"(?i)((?:{_NAMES})'\s*:\s*')[^']+", rf"\1{REDACTED}"),
    )
}

_TOKEN = re.compile(
    r'(?P<string>"(?P<inside>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?\Z))(?P<colon>\s*:)?'
    r'|(?P<open>[{\[])|(?P<close>[}\]])|(?P<scalar>[^\s{}\[\]:,"]++)',
    re.DOTALL,
)


def redacted_text(text: str) -> str:
    """Return a text without its secrets; keys are evaluated in pieces of JSON."""
    if '"' in text and (":" in text or "--" in text):
        text = redacted_json(text)
    for pattern, replacement in _PATTERNS.items():
        if pattern.search(text):  # rare, and cheaper than `sub`
            text = pattern.sub(replacement, text)
    return text


_safe_key = lru_cache(1 << 12)(redacted_text)


def redacted(value: Any, hidden: Hidden = Hidden.SECRETS) -> Any:
    """Return a parsed JSON value without its secrets, and without the values that `hidden` covers."""
    match value:
        case dict():
            return {_safe_key(key): redacted(item, _below(key, hidden, _opening(item))) for key, item in value.items()}
        case list():
            pairs = zip([None, *value], value, strict=False)  # each item after the one before it
            return [redacted(item, _after(flag, hidden, item)) for flag, item in pairs]
        case str():
            return _redacted_string(value, hidden)
        case None | bool():
            return REDACTED if hidden is Hidden.ALL else value
        case _:
            return REDACTED if hidden >= Hidden.NUMBERS else value


def redacted_json(text: str) -> str:
    """Return a JSON text, which may be damaged or truncated, without its secrets and otherwise unchanged."""
    pieces: list[str] = []
    done = 0
    levels = [Hidden.SECRETS]  # one level for the document and for each open bracket
    key: str | None = None
    flag: str | None = None  # the preceding string, in an array
    for token in _TOKEN.finditer(text):
        shown = whole = token[0]
        if token["open"]:
            levels.append(_below(key, levels[-1], whole))
        elif token["close"]:
            if len(levels) > 1:
                levels.pop()
        elif token["colon"]:
            key = _plain(token["inside"])
            if (safe := _safe_key(key)) != key:
                shown = json.dumps(safe) + token["colon"]
        elif token["string"]:
            plain = _plain(token["inside"])
            hidden = _below(key, levels[-1], plain) if key is not None else _after(flag, levels[-1], plain)
            safe = _redacted_string(plain, hidden)
            if safe != plain:
                shown = json.dumps(safe)
        else:
            shown = _redacted_scalar(whole, _below(key, levels[-1], whole))
        if not token["colon"]:
            flag = _plain(token["inside"]) if token["string"] and key is None else None
            key = None
        if shown != whole:
            pieces += text[done : token.start()], shown
            done = token.end()
    return "".join([*pieces, text[done:]]) if pieces else text


def _below(key: str | None, hidden: Hidden, value: str) -> Hidden:
    """Return the level for the value of a key.

    Args:
        key: the key; None for an element of an array.
        hidden: level of the enclosing object or array.
        value: the text of the value, or its opening bracket.
    """
    if key is None or hidden is Hidden.ALL:
        return hidden
    name = _words_of(key)
    if _ENVIRONMENT_KEY.fullmatch(name) and _DUMP.match(value):
        return Hidden.ALL
    if _SECRET_KEY.search(f"_{name}_"):
        return Hidden.NUMBERS
    if _PASS_KEY.search(f"_{name}_") and not _NOT_PASSWORD.fullmatch(value):
        return max(hidden, Hidden.STRINGS)
    return max(hidden, Hidden.STRINGS) if _TOKEN_KEY.search(f"_{name}_") else hidden


def _after(flag: Any, hidden: Hidden, value: Any) -> Hidden:
    """Return the level for an array element whose preceding element may be a flag like ``--token``."""
    if not (isinstance(flag, str) and isinstance(value, str) and len(flag) <= _FLAG_MAX and _FLAG.fullmatch(flag)):
        return hidden
    if _FLAG.fullmatch(value) or _NUMBER.fullmatch(value):
        return hidden
    return max(hidden, _below(flag, Hidden.SECRETS, value))


@lru_cache(1 << 12)
def _words_of(key: str) -> str:
    """Return a key in snake_case."""
    return "_".join(_WORDS.findall(key)).lower()


def _opening(value: Any) -> str:
    return value if isinstance(value, str) else "{" if isinstance(value, dict | list) else ""


def _redacted_string(text: str, hidden: Hidden) -> str:
    return REDACTED if hidden >= Hidden.STRINGS else redacted_text(text)


def _redacted_scalar(text: str, hidden: Hidden) -> str:
    number = text[0] in "-0123456789"
    return f'"{REDACTED}"' if hidden >= (Hidden.NUMBERS if number else Hidden.ALL) else text


def _plain(inside: str) -> str:
    """Decode the inside of a JSON string; return it unchanged if it is malformed."""
    if "\\" not in inside:
        return inside
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return inside
