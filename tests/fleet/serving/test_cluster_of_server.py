"""A server starts only with a cluster that nobody else can use."""

from pathlib import Path

import pytest

from service.fleet.serving.cluster_of_server import cluster_of_server
from service.settings import Settings
from service.trace.errors import BadFleetRequest

CERTIFICATES = ("dask_tls_ca", "dask_tls_cert", "dask_tls_key")


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_settings_name_the_cluster(tmp_path: Path) -> None:
    for name in CERTIFICATES:
        (tmp_path / name).touch()
    files = {name: tmp_path / name for name in CERTIFICATES}
    cluster = cluster_of_server(settings(dask_scheduler="tls://node1:8786", dask_wait_s=5, **files), tmp_path)
    request = cluster.request()
    assert (request.mode, request.scheduler, request.patience_s) == ("dask", "tls://node1:8786", 5)
    assert request.tls
    assert (request.tls.ca, request.tls.cert, request.tls.key) == tuple(files.values())


def test_scheduler_file_may_appear_later(tmp_path: Path) -> None:
    assert cluster_of_server(settings(dask_scheduler=str(tmp_path / "later.json")), tmp_path).tls is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dask_scheduler": "tcp://node1:8786"}, "has no TLS"),
        ({"dask_scheduler": "tls://node1:8786"}, "needs certificates"),
        ({"dask_scheduler": "tls://node1:8786", "dask_tls_ca": "/ca.pem"}, "set all three"),
        ({"dask_scheduler": "tls://node1:8786", **dict.fromkeys(CERTIFICATES, "/ca.pem")}, "no file /ca.pem"),
    ],
)
def test_cluster_that_others_could_use_is_refused(values: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadFleetRequest, match=message):
        cluster_of_server(settings(**values), tmp_path)
