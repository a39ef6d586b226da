"""Presigned requests: one request to S3 that a client without credentials may send.

They are signed here, and not by the library of buckets, since that can't sign header fields: `If-None-Match: *`, with
which S3 refuses to replace an object, and `Content-Length`. The form is that of
https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from service.store.external_objects import split_url
from service.store.locations import s3_environment

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class PresignedRequest:
    """A request that its holder may send until it expires; its URL is secret.

    Attributes:
        method: its method.
        url: its URL.
        headers: the header fields that it must have, with these values.
        expires_ns: when the store begins to refuse it, as nanoseconds since the epoch.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str]
    expires_ns: int


def presigned_put(object_url: str, *, size: int, lifetime_s: int, now_ns: int) -> PresignedRequest:
    """Return a request that writes a new object of an exact size, and no other.

    Args:
        object_url: its URL, like ``s3://bucket/key``.
        size: its number of bytes.
        lifetime_s: seconds until the request expires; at most a week.
        now_ns: the time, as nanoseconds since the epoch.

    Raises:
        LocationDenied: there are no credentials.
    """
    root, key = split_url(object_url)
    keys, region = s3_environment.keys(), s3_environment.region()
    base = s3_environment.endpoint() or f"https://s3.{region}.amazonaws.com"
    path = f"{urlsplit(base).path}/{quote(root.partition('://')[2])}/{quote(key)}"
    headers = {"Content-Length": str(size), "If-None-Match": "*"}
    signed = {"host": urlsplit(base).netloc} | {name.lower(): value for name, value in headers.items()}
    moment = datetime.fromtimestamp(now_ns // 10**9, UTC)
    scope = f"{moment:%Y%m%d}/{region}/s3/aws4_request"
    query = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access}/{scope}",
        "X-Amz-Date": f"{moment:%Y%m%dT%H%M%SZ}",
        "X-Amz-Expires": str(lifetime_s),
        "X-Amz-SignedHeaders": ";".join(sorted(signed)),
    } | ({"X-Amz-Security-Token": keys.token} if keys.token else {})
    options = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
    fields = "".join(f"{name}:{value}\n" for name, value in sorted(signed.items()))
    request = "\n".join(["PUT", path, options, fields, query["X-Amz-SignedHeaders"], "UNSIGNED-PAYLOAD"])
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join([_ALGORITHM, query["X-Amz-Date"], scope, digest])
    signature = hmac.new(_signing_key(keys.secret, scope), text.encode(), "sha256").hexdigest()
    origin = base.removesuffix(urlsplit(base).path)
    url = f"{origin}{path}?{options}&X-Amz-Signature={signature}"
    return PresignedRequest("PUT", url, headers, (now_ns // 10**9 + lifetime_s) * 10**9)


def _signing_key(secret: str, scope: str) -> bytes:
    """Return the key for requests of a day, region and service."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
