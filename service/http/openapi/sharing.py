"""Makes components of what several operations share: choices and parameters."""

from collections import Counter
from typing import Any

import orjson

from service.http.openapi.fragments import Json
from service.http.openapi.names import ENUMS, pascal_case

_ENUM_KEYS = {"type", "enum"}


def share_enums(document: Json) -> Json:
    """Return a document in which the choices of `ENUMS` are schemas of their own."""
    names = {values: name for name, values in ENUMS.items()}

    def shared(node: Any) -> Any:
        if isinstance(node, list):
            return [shared(part) for part in node]
        if not isinstance(node, dict):
            return node
        result = {key: shared(value) for key, value in node.items()}
        values = node.get("enum")
        if not isinstance(values, list) or tuple(values) not in names:
            return result
        rest = {key: value for key, value in result.items() if key not in _ENUM_KEYS}
        return {"$ref": f"#/components/schemas/{names[tuple(values)]}"} | rest

    result: Json = shared(document)
    result["components"]["schemas"] |= {
        name: {"type": "string", "enum": list(values)} for name, values in ENUMS.items()
    }
    return result


def share_parameters(document: Json) -> Json:
    """Replace parameters that several operations have by references, and return the document.

    If parameters of the same name differ, the most frequent one is shared.
    """
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    counts = Counter(_encoded(parameter) for operation in operations for parameter in operation.get("parameters", ()))
    components: Json = {}
    references: dict[bytes, Json] = {}
    for encoded, count in counts.most_common():
        parameter = orjson.loads(encoded)
        name = pascal_case(parameter["name"])
        if count > 1 and name not in components:
            components[name] = parameter
            references[encoded] = {"$ref": f"#/components/parameters/{name}"}
    for operation in operations:
        if "parameters" in operation:
            operation["parameters"] = [
                references.get(_encoded(parameter), parameter) for parameter in operation["parameters"]
            ]
    document["components"]["parameters"] = dict(sorted(components.items()))
    return document


def _encoded(parameter: Json) -> bytes:
    return orjson.dumps(parameter, option=orjson.OPT_SORT_KEYS)
