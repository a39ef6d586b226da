from tests.cli.conftest import client, server

__all__ = ["client", "server"]
