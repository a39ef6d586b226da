"""The Perfetto UI shows all arguments of a selected slice though its engine has loaded only some, in a real browser."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.http.test_opening import write_opening
from tests.http.test_slices import write_hostile
from tests.server import Server
from tests.web.conftest import OpenContext
from tests.web.viewer import Viewer

NAME = "arguments.pt.trace.json"


@pytest.fixture(scope="module")
def sparing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server to which each trace of more than ten events is large."""
    server = Server(tmp_path_factory.mktemp("sparing") / "data", ui_all_args_events=10).start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def hostile(sparing: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(sparing.upload(write_hostile(tmp_path_factory.mktemp("hostile") / NAME))["id"])


@pytest.fixture(scope="module")
def opening(sparing: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(sparing.upload(write_opening(tmp_path_factory.mktemp("opening") / NAME))["id"])


def address(server: Server, trace: str, **params: object) -> str:
    return f"{server.url}/api/v1/traces/{trace}/perfetto?{urlencode(params)}"


def details_of(viewer: Viewer, number: int) -> str:
    """Select a slice by its id, and return the text of its details."""
    viewer.select(number)
    return viewer.details().inner_text()


def test_details_are_those_of_an_engine_with_all_arguments(
    sparing: Server, open_context: OpenContext, hostile: str
) -> None:
    numbers = [number for [number] in sparing.rows(hostile, "select id from slice order by id")]
    whole = Viewer.open(open_context().new_page(), address(sparing, hostile, args="all"))
    expect(whole.page).to_have_title(f"{NAME} - Perfetto UI")
    for query, words in (({}, "essential arguments"), ({"args": "none"}, "no arguments")):
        viewer = Viewer.open(open_context().new_page(), address(sparing, hostile, **query))
        expect(viewer.page).to_have_title(f"{NAME} ({words}) - Perfetto UI")
        shown = 0
        for number in numbers:
            assert isinstance(number, int)
            expected = details_of(whole, number)
            assert details_of(viewer, number) == expected
            shown += "Arguments" in expected
        assert shown >= 2 * 13
        expect(viewer.notice).to_have_count(0)


def test_slice_of_a_selection_shows_its_own_arguments(sparing: Server, page: Page, opening: str) -> None:
    rows = sparing.query(
        opening,
        "select s.id, extract_arg(arg_set_id, 'args.mark') from slice as s where name = 'alike' and ts > 2150000",
        selection={"steps": [4]},
    ).json()["rows"]
    assert len(rows) > 3
    viewer = Viewer.open(page, address(sparing, opening, steps=4, args="essential"))
    expect(page).to_have_title(f"{NAME} (cut) (essential arguments) - Perfetto UI")
    for number, mark in rows:
        assert re.search(rf"args\.mark[a-z_\s]*{mark}(\D|$)", details_of(viewer, number))


def test_slice_of_two_events_shows_what_the_engine_has_and_the_reason(
    sparing: Server, page: Page, opening: str
) -> None:
    [[number]] = sparing.rows(opening, "select id from slice where name = 'other'")
    assert isinstance(number, int)
    viewer = Viewer.open(page, address(sparing, opening, args="essential"))
    details_of(viewer, number)
    expect(viewer.notice).to_contain_text(
        "The selected slice shows essential arguments. The slice 'other' of the engine"
    )
    viewer.notice.get_by_role("button", name="Close").click()
    expect(viewer.notice).to_have_count(0)


def test_search_says_which_arguments_it_finds_and_links_to_all(sparing: Server, page: Page, opening: str) -> None:
    viewer = Viewer.open(page, address(sparing, opening, args="essential"))
    viewer.search("alike")
    expect(viewer.notice).to_contain_text(
        "Search and SQL find essential arguments only. A selected slice shows all of its arguments."
    )
    viewer.notice.get_by_role("link", name="Load all arguments").click()
    expect(page).to_have_title(f"{NAME} - Perfetto UI")
    viewer.expect_tracks()
    viewer.query("select count(*) from args")
    expect(viewer.notice).to_have_count(0)


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from slice, args where slice.arg_set_id = args.arg_set_id",
        'select extract_arg(arg_set_id, "args.mark") from slice',
        "include perfetto module torch.ops; select count(input_dims) from torch_op",
        "select count(*) from\n-- all of them\nargs",
    ],
)
def test_sql_that_may_read_arguments_says_which_are_loaded(sparing: Server, page: Page, opening: str, sql: str) -> None:
    viewer = Viewer.open(page, address(sparing, opening, args="essential"))
    viewer.query("select count(*) from slice")
    expect(viewer.notice).to_have_count(0)
    viewer.query(sql)
    expect(viewer.notice).to_contain_text("Search and SQL find essential arguments only")


def test_sql_without_any_arguments_says_so(sparing: Server, page: Page, opening: str) -> None:
    viewer = Viewer.open(page, address(sparing, opening, args="none"))
    viewer.query("select count(*) from args")
    expect(viewer.notice).to_contain_text(
        "Search and SQL find no arguments. A selected slice shows all of its arguments."
    )


def test_all_arguments_are_loaded_at_the_slice_that_is_selected(sparing: Server, page: Page, opening: str) -> None:
    [[number]] = sparing.rows(opening, "select id from slice where name = 'later'")
    assert isinstance(number, int)
    viewer = Viewer.open(page, address(sparing, opening, args="essential"))
    shown = details_of(viewer, number)
    page.get_by_role("link", name="Load all arguments").click()
    expect(page).to_have_title(f"{NAME} - Perfetto UI")
    viewer.expect_tracks()
    expect(viewer.details()).to_have_text(shown, use_inner_text=True)
    assert page.evaluate("app.trace.selection.selection.eventId") == number


def test_sidebar_links_to_all_arguments_of_the_same_part(sparing: Server, page: Page, opening: str) -> None:
    viewer = Viewer.open(page, address(sparing, opening, steps=4, args="none"))
    page.get_by_role("link", name="Load all arguments").click()
    expect(page).to_have_title(f"{NAME} (cut) - Perfetto UI")
    viewer.expect_tracks()
    expect(page.get_by_role("link", name="Load all arguments")).to_have_count(0)


def test_slice_is_asked_for_again_while_its_engine_loads(sparing: Server, page: Page, opening: str) -> None:
    [[number]] = sparing.rows(opening, "select id from slice where name = 'later'")
    assert isinstance(number, int)
    viewer = Viewer.open(page, address(sparing, opening, args="essential"))
    headers = {"Retry-After": "0"}
    page.route("**/slice?**", lambda route: route.fulfill(status=202, json={}, headers=headers), times=1)
    assert "args.mark" in details_of(viewer, number)
