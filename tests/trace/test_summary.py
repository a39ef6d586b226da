"""A summary survives JSON, and summaries of earlier versions are read."""

from dataclasses import asdict

import orjson

from service.trace.summary import Summary

SUMMARY = Summary(
    format="json.gz",
    rank=3,
    bounds={"start_ns": 1, "end_ns": 2},
    events={"in": 2, "kept": 1, "refused": 1},
    processes=[{"pid": "a", "name": None, "labels": "CPU", "events": 1}],
    threads=[{"pid": 1, "tid": 2, "name": "main", "events": 1, "device": None, "host": True}],
    devices=[{"id": 0, "name": "H100", "memory_bytes": 1, "events": 1, "bounds": {"start_ns": 1, "end_ns": 2}}],
    steps=[{"number": 1, "name": "ProfilerStep#1", "start_ns": 1, "end_ns": 2, "pid": 1, "tid": 2}],
)


def test_summary_survives_json() -> None:
    assert Summary.from_json(SUMMARY.as_json()) == SUMMARY


def test_json_text_has_all_fields_in_order() -> None:
    assert list(orjson.loads(SUMMARY.as_json())) == list(asdict(SUMMARY))
    assert orjson.loads(SUMMARY.as_json()) == asdict(SUMMARY)


def test_missing_fields_have_defaults_and_unknown_fields_are_ignored() -> None:
    assert Summary.from_json('{"format": null, "steps_count": 7}') == Summary(format=None)
