"""The OpenAPI document of a server, as tests read it."""

from typing import Any, cast

from tests.server import Server

Json = dict[str, Any]


def document_of(server: Server, token: str = "") -> Json:
    """Return the document as the server sends it; it asks for a token if it has one."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return cast(Json, server.api.get(f"{server.url}/openapi.json", headers=headers).raise_for_status().json())


def resolved(document: Json) -> Json:
    """Return the document with the definitions of parameters and responses in place of references to them."""

    def place(node: Any) -> Any:
        if isinstance(node, list):
            return [place(part) for part in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref", "")
        if isinstance(reference, str) and reference.startswith(("#/components/parameters/", "#/components/responses/")):
            kind, name = reference.split("/")[-2:]
            return place(document["components"][kind][name])
        return {key: place(value) for key, value in node.items()}

    return document | {"paths": place(document["paths"])}


def operations(document: Json) -> list[tuple[str, str, Json]]:
    """Return the method, path and description of each operation of a document."""
    return [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
