"""Names of pieces of a trace begin like the trace's, and fit into a file system."""

from hypothesis import given
from hypothesis import strategies as st

from service.formats.names import NAME_MAX_BYTES, child_name


@given(st.text("aé語", min_size=1, max_size=255), st.sampled_from(["", ".json", ".pt.trace.json.gz"]))
def test_name_of_a_piece_fits(base: str, suffix: str) -> None:
    name = child_name(base + suffix, "step3")
    end = ".step3.pt.trace.json.gz"
    assert name.endswith(end)
    assert len(name.encode()) <= NAME_MAX_BYTES
    beginning = name.removesuffix(end)
    assert base.startswith(beginning)
    assert beginning == base or len(name.encode()) > NAME_MAX_BYTES - 3
