"""The pictures of analyses: what is drawn equals the tables that the API answers."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.server import Server
from tests.web.look import overhang
from tests.web.test_analyses import answer, opened

EXAMPLE = Path(__file__).parents[2] / "docs/examples/gpt_rank0.pt.trace.json.gz"


@pytest.fixture(scope="module")
def gpt_id(server: Server) -> str:
    """A trace with modules, memory, collectives and a data loader."""
    return str(server.upload(EXAMPLE)["id"])


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def marks(panel: Locator, chart: str) -> list[dict[str, str]]:
    """Return the data of the marks of a chart once it is drawn."""
    drawing = panel.get_by_test_id(f"chart-{chart}")
    expect(drawing.locator("[data-value]").first).to_be_attached()
    found: list[dict[str, str]] = drawing.locator("[data-value]").evaluate_all("all => all.map(e => ({...e.dataset}))")
    return found


def sums(drawn: list[dict[str, str]]) -> Counter[str]:
    """Return the sum of values of each series."""
    total: Counter[str] = Counter()
    for mark in drawn:
        total[mark["series"]] += int(mark["value"])
    return total


def test_bars_of_steps_have_the_parts_of_each_step(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=steps")
    rows = rows_of(answer(server, gpt_id, "steps")["steps"])
    drawn = marks(panel, "steps")
    assert {mark["bar"] for mark in drawn} == {f"Step {row['step']}" for row in rows}
    assert sums(drawn)["kernels"] == sum(row["kernel_ns"] for row in rows)
    assert sums(drawn).total() == sum(row["total_ns"] for row in rows)


def test_treemap_has_a_tile_of_each_kernel(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=kernel_breakdown")
    rows = rows_of(answer(server, gpt_id, "kernel_breakdown")["total_kernels"])
    drawn = marks(panel, "kernel_breakdown")
    assert sorted(int(mark["value"]) for mark in drawn) == sorted(row["sum_ns"] for row in rows)
    sizes = panel.get_by_test_id("chart-kernel_breakdown").locator("[data-value]")
    areas = sizes.evaluate_all(
        "all => all.map(e => [+e.dataset.value, (+e.getAttribute('width') + 1) * (+e.getAttribute('height') + 1)])"
    )
    scale = sum(area for _, area in areas) / sum(value for value, _ in areas)
    assert all(area == pytest.approx(value * scale, rel=0.05) for value, area in areas[:5])


def test_flame_graph_of_modules_zooms_by_keyboard(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=modules")
    rows = [row for row in rows_of(answer(server, gpt_id, "modules")["modules"]) if row["device_total_ns"]]
    drawn = marks(panel, "modules_device")
    assert sorted(int(mark["value"]) for mark in drawn) == sorted(row["device_total_ns"] for row in rows)
    chart = panel.get_by_test_id("chart-modules_device")
    first = chart.locator(".frame[tabindex='0']")
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(chart.get_by_role("button", name="Show all")).to_be_visible()
    assert chart.locator(".frame").count() < len(drawn)
    page.keyboard.press("Escape")
    expect(chart.locator(".frame")).to_have_count(len(drawn))


def test_lines_of_memory_have_the_points_of_the_curve(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=memory")
    tables = answer(server, gpt_id, "memory")
    line = panel.get_by_test_id("chart-memory").locator("path[data-series=allocated]")
    expect(line).to_have_attribute("data-points", str(len(tables["curve"]["rows"])))
    held = {row["operator"]: row["held_bytes"] for row in rows_of(tables["at_peak"])}
    assert max(int(mark["value"]) for mark in marks(panel, "memory_peak")) == max(held.values())


def test_points_of_bandwidth_are_those_of_the_copies(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=memory_bandwidth")
    series = rows_of(answer(server, gpt_id, "memory_bandwidth")["series"])
    rows = [row for row in series if row["bandwidth_gbps"] > 0]  # a logarithmic axis has no 0
    drawn = marks(panel, "memory_bandwidth")
    assert len(drawn) == len(rows)
    assert sum(float(mark["value"]) for mark in drawn) == pytest.approx(sum(row["bandwidth_gbps"] for row in rows))


def test_box_plot_has_the_percentiles_of_launches(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=launch_stats")
    rows = rows_of(answer(server, gpt_id, "launch_stats")["summary"])
    drawn = marks(panel, "launch_stats")
    assert [(float(mark["value"]), int(mark["max"])) for mark in drawn] == [
        (row["p50_ns"], row["max_ns"]) for row in rows
    ]


def test_strip_of_the_critical_path_has_each_edge(page: Page, server: Server, gpt_id: str) -> None:
    panel = opened(page, server, gpt_id, "?analysis=critical_path")
    rows = rows_of(answer(server, gpt_id, "critical_path")["path"])
    lengths: Counter[str] = Counter()
    for row in rows:
        lengths[row["kind"]] += row["end_ns"] - row["start_ns"]
    drawn = marks(panel, "critical_path_strip")
    assert {kind: value for kind, value in sums(drawn).items() if value} == {
        kind: value for kind, value in lengths.items() if value
    }
    assert sum(int(mark["marks"]) for mark in drawn) == len(rows)


LATE_US = 2_000_000
LATE = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::first", "pid": 1, "tid": 1, "ts": 1e12, "dur": 1},
    *(
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1e12 + LATE_US + at, "dur": 10, "args": args}
        for cat, name, at, args in (
            ("cuda_runtime", "cudaMemcpyAsync", 0, {"correlation": 1}),
            ("gpu_memcpy", "Memcpy HtoD", 50, {"correlation": 1, "device": 0, "stream": 7, "bytes": 1000}),
            ("cuda_runtime", "cudaMemcpyAsync", 100, {"correlation": 2}),
            ("gpu_memcpy", "Memcpy HtoD", 190, {"correlation": 2, "device": 0, "stream": 7, "bytes": 2000}),
        )
    ),
]


@pytest.mark.parametrize("name", ["queue_length", "memory_bandwidth"])
def test_charts_count_time_from_the_start_of_the_trace(page: Page, server: Server, tmp_path: Path, name: str) -> None:
    path = tmp_path / "late.json"
    path.write_text(json.dumps({"traceEvents": LATE}))
    panel = opened(page, server, server.upload(path)["id"], f"?analysis={name}")
    labels = panel.get_by_test_id(f"chart-{name}").locator("text[text-anchor=middle]")
    expect(labels.first).to_be_visible()
    times = [text for text in labels.all_text_contents() if text != "time"]
    assert len(times) >= 2
    assert all(re.fullmatch(r"2\.000\d+ s", text) for text in times)
    assert sorted({*times}) == times


@pytest.mark.parametrize("name", ["memory", "modules", "collectives", "launch_stats"])
def test_pictures_fit_a_phone(open_context: Any, server: Server, gpt_id: str, name: str) -> None:
    page = open_context(width=360, scheme="dark").new_page()
    panel = opened(page, server, gpt_id, f"?analysis={name}")
    expect(panel.get_by_test_id("analysis-answer").locator("figure svg").first).to_be_visible()
    assert overhang(page) <= 0


KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<float>, std::array<char*, 3ul> >(int)"
    for functor in (
        "(anonymous namespace)::lerp_scalar_kernel",
        "sqrt_kernel_cuda",
        "addcdiv_cuda_kernel",
        "MulFunctor",
    )
] + ["aten::mm", "a" * 60, "a" * 59 + "b"]


@pytest.mark.parametrize("width", [110, 200, 330])
def test_cut_labels_of_bars_differ_as_the_names_do(page: Page, server: Server, width: int) -> None:
    page.goto(f"{server.url}/")
    cut = "([labels, width]) => import('/static/charts/labels.js').then(({ cutLabels }) => cutLabels(labels, width))"
    labels = page.evaluate(cut, [KERNELS, width])
    assert len({*labels[:5]}) == 5
    assert max(map(len, labels)) <= (width - 10) // 6.9
    assert labels[4] == "aten::mm"
    if width == 200:
        assert labels[0] == "vectoriz…lerp_scalar_ker…"


@pytest.mark.parametrize(
    ("first", "last", "time", "text"),
    [
        (0, 1_000_000, 123_456, "123 µs"),
        (2_000_000_000, 2_001_000_000, 2_000_123_456, "2.000123 s"),
        (2_000_000_000, 2_000_000_050, 2_000_000_007.6, "2.000000008 s"),
        (0, 50, 7.6, "8 ns"),
        (0, 50, 0.2, "0"),
    ],
)
def test_tooltips_of_all_charts_show_times_in_whole_ns(
    page: Page, server: Server, first: float, last: float, time: float, text: str
) -> None:
    page.goto(f"{server.url}/")
    code = "([a, b, t]) => import('/static/charts/scale.js').then(({ exactTimeText }) => exactTimeText(a, b)(t))"
    assert page.evaluate(code, [first, last, time]) == text


def test_tooltip_of_lines_over_20_ns_shows_whole_ns(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    draw = """async () => {
        const { lines } = await import('/static/charts/lines.js');
        const points = [{ x: 0, y: 1 }, { x: 20, y: 2 }];
        const series = [{ kind: 'compute', label: 'bytes', points }];
        const figure = lines({ title: 'Bytes', name: 'short', series, textOfY: String });
        document.querySelector('main').prepend(figure);
    }"""
    page.evaluate(draw)
    surface = page.get_by_test_id("chart-short").locator("rect[fill=transparent]")
    box = surface.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.327, box["y"] + 20)
    expect(page.locator(".tooltip")).to_contain_text(re.compile(r"^[67] ns"))
