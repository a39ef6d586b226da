"""Operators that can run on tensor cores, and TensorBoard's rule for kernels; see `kernel_names` for the exact rule."""

KERNEL_PARTS = (
    *("h884", "s884", "h1688", "s1688", "c1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "conv1x1"),
    *("first_layer_wgrad_kernel", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv"),
    *("xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm"),
)
"""Parts of names by which TensorBoard recognizes kernels that use tensor cores."""

OPERATORS = frozenset(
    {
        *("aten::_convolution", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv_tbc"),
        *("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", "aten::convolution"),
        *("aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::prelu", "aten::addmm", "aten::addmm_"),
        *("aten::addmv", "aten::addr", "aten::matmul", "aten::mm", "aten::mv", "aten::linear", "aten::addbmm"),
        *("aten::baddbmm", "aten::bmm", "aten::chain_matmul", "aten::linalg_multi_dot", "aten::rnn_relu_cell"),
        *("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::lstm_cell", "aten::gru_cell"),
        *("aten::rnn_tanh_cell", "aten::cudnn_convolution_backward", "aten::cudnn_convolution_backward_input"),
        *("aten::cudnn_convolution_backward_weight", "aten::cudnn_convolution_transpose_backward"),
        *("aten::cudnn_convolution_transpose_backward_input", "aten::cudnn_convolution_transpose_backward_weight"),
        *("CudnnConvolutionBackward", "CudnnConvolutionTransposeBackward", "BmmBackward0", "MmBackward"),
        *("AddmvBackward", "MvBackward", "AddmmBackward", "AddbmmBackward"),
    }
)
"""Operators that can run on tensor cores."""


def on_tensor_cores(name: str) -> bool:
    """Return whether a kernel uses tensor cores by TensorBoard's rule, which covers NVIDIA's older libraries only."""
    return any(part in name for part in KERNEL_PARTS)
