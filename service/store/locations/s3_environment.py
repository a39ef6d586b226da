"""Settings of S3 in the environment: endpoint, region and credentials, as boto3 finds them."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from service.trace.errors import LocationDenied


class Keys(NamedTuple):
    """Credentials of S3; `token` is that of a session, or empty. Its text hides the secrets."""

    access: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        """Return a text without the keys, since errors and logs show it."""
        return "Keys(…)"


def endpoint() -> str | None:
    """Return the URL of the server, without a slash at its end; None for Amazon's own."""
    url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return url.rstrip("/") if url else None


def region() -> str:
    """Return the region; that of servers without regions if none is set."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def boto3_provider() -> Callable[[], Any] | None:
    """Return boto3's source of credentials, for the library of buckets; None without boto3 or without credentials."""
    with suppress(ImportError):
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - slow, and not always needed

        with suppress(ValueError):  # boto3 finds no credentials
            return Boto3CredentialProvider()
    return None


def keys() -> Keys:
    """Return credentials that can sign a request.

    Raises:
        LocationDenied: there are none in the environment, and boto3 is not installed or finds none either.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    access, secret, token = (os.environ.get(name, "") for name in names)
    if access and secret:
        return Keys(access, secret, token)
    provider = boto3_provider()
    if provider is None:
        raise LocationDenied(
            "No credentials can sign a request: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install boto3,"
            " which finds those of profiles and roles."
        )
    found = provider()
    return Keys(found["access_key_id"], found["secret_access_key"], found.get("token") or "")
