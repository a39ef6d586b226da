"""Whom a request is for and which page made it: what tells a visitor from a page that uses his browser.

A page can have the browser ask any server, this one too, also one that no other machine can reach. The browser tells
of it in ``Origin`` and ``Sec-Fetch-Site``; and where the page's own name was made to lead here (DNS rebinding), the
name is in ``Host``.
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
    """The name, or the address, in a ``Host`` field; nothing if there is none."""
    found = _HOST.fullmatch(field.lower())
    return found[1] if found else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
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
    return {one.strip().lower() for one in setting.split(",") if one.strip()}


def _origin(text: str) -> str:
    """An origin of the setting, as browsers send it; raises `BadOrigin`."""
    origin = text.rstrip("/")
    if not _ORIGIN.fullmatch(origin):
        raise BadOrigin(
            f"{text[:100]!r} in the setting allowed_origins is no origin; write `https://name` or `https://name:port`."
        )
    return origin


class Hosts:
    """The names of this server, and the pages that may use it."""

    def __init__(self, settings: Settings) -> None:
        self._exposed = not is_loopback(settings.host)
        own = {f"[{settings.host}]" if ":" in settings.host else settings.host.lower()}
        if self._exposed:
            own.add(socket.gethostname().lower())
        self._names = LOOPBACK | own | {*map(host_name, _listed(settings.allowed_hosts))} - {""}
        self.origins = frozenset(map(_origin, _listed(settings.allowed_origins)))

    def check(self, connection: HTTPConnection, *, safe: bool) -> None:
        """Let a request pass that is for this server, and that is `safe` or made by a page of its own, or by none.

        Raises:
            WrongHost: it is for another.
            WrongOrigin: a foreign page has made it.
        """
        fields = connection.headers.getlist("host")
        name = host_name(fields[0]) if len(fields) == 1 else ""
        # no page has an address of ours for a name, unless it came from here
        if name not in self._names and not (self._exposed and _is_address(name)):
            raise WrongHost(
                f"No server is called {', '.join(fields)[:200]!r} here; the setting allowed_hosts can name it."
            )
        if not safe and self._is_foreign(connection):
            raise WrongOrigin("A page of another site has made the request; the setting allowed_origins can name it.")

    def _is_foreign(self, connection: HTTPConnection) -> bool:
        origin = connection.headers.get("origin")
        if origin is None:
            return connection.headers.get("sec-fetch-site") == "cross-site"
        return origin.lower() not in self.origins and not is_own(connection)


def is_own(connection: HTTPConnection) -> bool:
    """Whether the request tells that a page of the very server that it is for has made it."""
    origin = connection.headers.get("origin", "")
    try:
        return urlsplit(origin).netloc.lower() == connection.headers.get("host", "").lower() != ""
    except ValueError:
        return False
