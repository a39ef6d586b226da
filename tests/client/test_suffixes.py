"""The client, which knows no server, takes the same files of a folder as the server."""

from tracedock.uploading import SUFFIXES

from service.formats import names


def test_client_and_server_take_files_with_the_same_suffixes() -> None:
    assert sorted(SUFFIXES) == sorted(names.SUFFIXES)
