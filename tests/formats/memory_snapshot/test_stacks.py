"""Sites of stacks name a line of Python, an operator, or a function that allocates."""

import pytest

from service.formats.memory_snapshot.stacks import SITE_MAX, Frame, site_of

RECORDING: list[Frame] = [
    ("torch::unwind::unwind()", "??", 0),
    ("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0),
    ("torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp", 0),
    ("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)", "", 0),
]
EMPTY: Frame = ("at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0)
CALL: Frame = ("at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)", "??", 0)
BACKWARD: Frame = ("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)", "??", 0)
PYTHON: Frame = ("forward", "model.py", 7)


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ([], None),
        ([*RECORDING, EMPTY, CALL, PYTHON], "model.py:7 forward"),
        ([*RECORDING, EMPTY, CALL, BACKWARD], "at::_ops::bmm"),
        ([*RECORDING, EMPTY, BACKWARD], EMPTY[0]),
        ([*RECORDING, ("work", "pool.cpp", 3)], "pool.cpp:3 work"),
        (RECORDING, "torch::unwind::unwind()"),
        ([("x" * 1000, "??", 0)], "x" * SITE_MAX),
    ],
)
def test_site_is_the_frame_that_tells_best_where_a_stack_allocates(frames: list[Frame], site: str | None) -> None:
    assert site_of(frames) == site
