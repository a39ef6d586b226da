"""Routes that are built at their first use."""

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from service.http.deferred_route import DeferredRoute


@pytest.fixture
def app() -> FastAPI:
    router = APIRouter(route_class=DeferredRoute)

    @router.get("/steps/{step}")
    def step(step: int) -> dict[str, int]:
        return {"step": step}

    @router.post("/steps/{step}", status_code=201)
    def add_step(step: int) -> dict[str, int]:
        return {"added": step}

    app = FastAPI()
    app.router.routes.extend(router.routes)
    return app


def built(app: FastAPI) -> list[str]:
    """Return the endpoints of the routes that have been built."""
    routes = [route for route in app.routes if isinstance(route, DeferredRoute)]
    return [route.name for route in routes if "dependant" in vars(route)]


def test_request_builds_only_the_route_that_answers_it(app: FastAPI) -> None:
    with TestClient(app) as client:
        assert built(app) == []
        assert client.post("/steps/3").json() == {"added": 3}
        assert built(app) == ["add_step"]
        assert client.get("/steps/no-number").status_code == 422
        assert client.get("/steps/4").json() == {"step": 4}
        assert built(app) == ["step", "add_step"]


def test_path_of_a_deferred_route_has_its_methods_alone(app: FastAPI) -> None:
    with TestClient(app) as client:
        response = client.delete("/steps/3")
    assert response.status_code == 405
    assert built(app) == []


def test_openapi_document_has_deferred_routes_whole(app: FastAPI) -> None:
    operation = app.openapi()["paths"]["/steps/{step}"]["post"]
    assert set(operation["responses"]) == {"201", "422"}
    assert [parameter["name"] for parameter in operation["parameters"]] == ["step"]


def test_attribute_that_no_route_has_is_missing(app: FastAPI) -> None:
    route = app.routes[-1]
    for _ in ("before the route is built", "after that"):
        with pytest.raises(AttributeError, match="'DeferredRoute' object has no attribute 'colour'"):
            _ = route.colour  # type: ignore[attr-defined]
