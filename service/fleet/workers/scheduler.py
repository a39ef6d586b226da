"""The scheduler that a request names: its address, its certificates and its version.

The server checks its settings with this module, which loads no code of tasks.
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from service.fleet.workers.request import Tls, WorkersRequest
from service.trace.errors import BadFleetRequest, ClusterUnavailable, FleetUnavailable, OtherVersion

if TYPE_CHECKING:
    from distributed import Security

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


def check_scheduler(request: WorkersRequest) -> None:
    """Check a request for the workers of a scheduler, without a connection.

    Raises:
        BadFleetRequest: the address or a certificate is missing, or others could run code on the workers.
        FleetUnavailable: Dask is not installed.
    """
    require_packages("distributed")
    if "://" in (request.scheduler or ""):  # a scheduler file may appear later
        address_of(request)
    if request.tls:
        _check_files(request.tls)


def address_of(request: WorkersRequest) -> str:
    """Return the address of the scheduler that a request names.

    Raises:
        BadFleetRequest: there is none, or others could run code on its workers.
    """
    if not request.scheduler:
        raise BadFleetRequest("The mode `dask` needs the address of a scheduler, or the path of its scheduler file.")
    address = request.scheduler
    if "://" not in address and (path := Path(address).expanduser()).is_file():
        try:
            address = str(orjson.loads(path.read_bytes())["address"])
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise BadFleetRequest(f"{path} is no scheduler file: {error!r}.") from error
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in {"tcp", "tls"} or not rest:
        raise BadFleetRequest(
            f"{address} is neither the address of a scheduler, like tls://HOST:8786, nor a scheduler file."
        )
    if scheme == "tcp" and rest.rpartition(":")[0] not in _LOOPBACK:
        raise BadFleetRequest(
            f"{address} has no TLS: anybody who can reach it can run code on its workers. Start scheduler and workers"
            " with --tls-ca-file, --tls-cert and --tls-key."
        )
    if scheme == "tls" and request.tls is None:
        raise BadFleetRequest(f"{address} needs certificates: name an authority, a certificate and a key.")
    return address


def security_of(request: WorkersRequest) -> "Security | None":
    """Return the certificates for a scheduler; raises `BadFleetRequest` if a file is missing."""
    from distributed import Security  # noqa: PLC0415 - optional

    if request.tls is None:
        return None
    _check_files(request.tls)
    files = {"tls_ca_file": request.tls.ca, "tls_client_cert": request.tls.cert, "tls_client_key": request.tls.key}
    return Security(require_encryption=True, **{name: str(path) for name, path in files.items()})


def _check_files(tls: Tls) -> None:
    for path in (tls.ca, tls.cert, tls.key):
        if not path.is_file():
            raise BadFleetRequest(f"There is no file {path}.")


def unreachable(request: WorkersRequest, where: str, error: Exception) -> ClusterUnavailable:
    """Return the error for a scheduler that can't be reached."""
    reasons = [f"{where} can't be reached: {_innermost(error)}."]
    if request.tls:
        from service.fleet.workers.certificates import faults_of  # noqa: PLC0415 - needs a package that is optional

        reasons += faults_of(request.tls.ca, request.tls.cert)
    return ClusterUnavailable(" ".join(reasons))


def _innermost(error: BaseException) -> str:
    """Return the text of the error that has caused others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def require_version(versions: Mapping[str, Any]) -> None:
    """Raise `OtherVersion` unless a scheduler has the version of Dask that this process has.

    Args:
        versions: result of `Client.get_versions`.
    """
    found = versions["scheduler"]["packages"]["distributed"]
    if found != distributed_version():
        raise OtherVersion(f"The scheduler has distributed {found}, and this process {distributed_version()}.")


def distributed_version() -> str:
    """Return the version of Dask's scheduler, or `none`."""
    try:
        return version("distributed")
    except PackageNotFoundError:
        return "none"


def require_packages(*names: str) -> None:
    """Raise `FleetUnavailable` unless these packages are installed."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise FleetUnavailable(
            f"{' and '.join(missing)} is not installed: install tracedock-server[fleet], for example"
            " `pip install '.[fleet]'`, or use the mode `here`."
        )
