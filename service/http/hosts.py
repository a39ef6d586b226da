"""Checks of the host and the origin of requests: protection against pages of other sites.

A page of any site can make the browser send requests to this server, even if no other machine can reach the server. The
browser reports the origin of the page in ``Origin`` and ``Sec-Fetch-Site``. If an attacker makes the name of the site
resolve to this machine (DNS rebinding), ``Host`` contains that name.
"""

import re
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from service.settings import Settings
from service.trace.errors import BadOrigin, WrongHost, WrongOrigin

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d+)?")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::\d*)?")


def host_name(field: str) -> str:
    """Return the name or the address in a ``Host`` field; empty if it is malformed."""
    match = _HOST.fullmatch(field.lower())
    return match[1] if match else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on `host`."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _listed(setting: str) -> set[str]:
    return {item.strip().lower() for item in setting.split(",") if item.strip()}


def _origin(text: str) -> str:
    """Return an origin from the setting `allowed_origins`, in the form that browsers send; raises `BadOrigin`."""
    origin = text.rstrip("/")
    if not _ORIGIN.fullmatch(origin):
        raise BadOrigin(
            f"{text[:100]!r} in the setting allowed_origins is not an origin; write `https://name` or `https://name:port`."
        )
    return origin


class Hosts:
    """The names of this server, and the origins whose pages may use it.

    Args:
        settings: the settings.

    Raises:
        BadOrigin: the setting `allowed_origins` is malformed.
    """

    def __init__(self, settings: Settings) -> None:
        self._exposed = not is_loopback(settings.host)
        own = {f"[{settings.host}]" if ":" in settings.host else settings.host.lower()}
        if self._exposed:
            own.add(socket.gethostname().lower())
        self._names = LOOPBACK | own | {*map(host_name, _listed(settings.allowed_hosts))} - {""}
        self.origins = frozenset(map(_origin, _listed(settings.allowed_origins)))

    def check(self, connection: HTTPConnection, *, safe: bool) -> None:
        """Check the host of a request, and also its origin if its method is not safe.

        Raises:
            WrongHost: the request is for another server.
            WrongOrigin: a page of another site has made the request.
        """
        fields = connection.headers.getlist("host")
        name = host_name(fields[0]) if len(fields) == 1 else ""
        # an IP address is safe: DNS rebinding needs a name
        if name not in self._names and not (self._exposed and _is_address(name)):
            raise WrongHost(
                f"This server is not called {', '.join(fields)[:200]!r}; the setting allowed_hosts can add that name."
            )
        if not safe and self._is_foreign(connection):
            raise WrongOrigin("A page of another site has made the request; the setting allowed_origins can allow it.")

    def _is_foreign(self, connection: HTTPConnection) -> bool:
        origin = connection.headers.get("origin")
        if origin is None:
            return connection.headers.get("sec-fetch-site") == "cross-site"
        return origin.lower() not in self.origins and not is_own(connection)


def is_own(connection: HTTPConnection) -> bool:
    """Return whether a page of this server has made the request, by its ``Origin``."""
    origin = connection.headers.get("origin", "")
    try:
        return urlsplit(origin).netloc.lower() == connection.headers.get("host", "").lower() != ""
    except ValueError:
        return False
