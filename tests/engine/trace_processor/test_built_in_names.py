"""Names that trace_processor defines."""

from pathlib import Path

from service.engine.trace_processor.built_in_names import built_in_names


def test_names_of_the_standard_library_are_read_from_the_program(engine: Path) -> None:
    assert {"slice", "thread_slice", "android_startups", "_ii_df_agg", "torch_kernel"} <= built_in_names(engine)
