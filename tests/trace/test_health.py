"""Health reports list defects, worst first, each with its first examples."""

import orjson
import pytest

from service.streaming.repair import Damage
from service.trace.health import CASES, EXAMPLES_MAX, TEXT_MAX, Health, Kind

TOKEN = "hf_" + "abcDEF0123456789" * 2


def health_with(*codes: str) -> Health:
    health = Health()
    for offset, code in enumerate(codes):
        health.add(code, offset=offset)
    return health


def test_report_lists_refusals_then_repairs_then_oddities() -> None:
    report = health_with("overlaps", "bad_escape", "cut", "unreadable_event", "invalid_utf8").as_dict(refused=2)

    assert [(note["kind"], note["code"]) for note in report["notes"]] == [
        ("refused", "unreadable_event"),
        ("refused", "cut"),
        ("repaired", "bad_escape"),
        ("repaired", "invalid_utf8"),
        ("oddity", "overlaps"),
    ]
    assert (report["refused"], report["repaired"]) == (2, 2)
    assert orjson.loads(orjson.dumps(report)) == report


def test_note_has_a_count_and_the_first_examples() -> None:
    health = Health()
    health.add("bad_escape", count=5, offset=7, text="C:\\data")
    for offset in range(10):
        health.add("bad_escape", offset=offset)

    (note,) = health.as_dict(refused=0)["notes"]

    assert note["count"] == health.count("bad_escape") == 15
    assert note["detail"] == CASES["bad_escape"].detail
    assert note["examples"] == [
        {"offset": 7, "text": "C:\\data"},
        {"offset": 0, "text": None},
        {"offset": 1, "text": None},
    ]


def test_note_without_a_place_or_text_has_no_example() -> None:
    assert health_with().as_dict(refused=0) == {"repaired": 0, "refused": 0, "notes": []}
    health = Health()
    health.add("unknown_rank")
    assert health.as_dict(refused=0)["notes"][0]["examples"] == []


def test_reports_of_pieces_join_in_order() -> None:
    joined = Health()
    for start in (0, 100):
        piece = Health()
        piece.add("bad_escape", count=2, offset=start)
        piece.add("bad_escape", offset=start + 1)
        joined.join(piece)

    (note,) = joined.as_dict(refused=0)["notes"]

    assert note["count"] == 6
    assert [example["offset"] for example in note["examples"]] == [0, 1, 100]
    assert len(note["examples"]) == EXAMPLES_MAX


@pytest.mark.parametrize(
    "text", [TOKEN, f"{'x' * (TEXT_MAX - 10)} {TOKEN}", f'"env": {{"PASSWORD": "{TOKEN}"}}', f'{{"HF_TOKEN": "{TOKEN}']
)
def test_examples_are_truncated_and_redacted(text: str) -> None:
    health = Health()
    health.add("bad_escape", offset=0, text=text)

    text_shown = health.as_dict(refused=0)["notes"][0]["examples"][0]["text"]

    assert text_shown
    assert len(text_shown) <= TEXT_MAX
    assert TOKEN[:8] not in text_shown


def test_every_repair_has_a_case() -> None:
    assert {str(damage) for damage in Damage} <= {code for code, case in CASES.items() if case.kind is Kind.REPAIRED}
