"""Classification of kernels by name: communication, matrix cores and precision.

All classification of kernels by name goes through this module, and PerfettoSQL's ``torch.collectives`` has the same
patterns. The patterns come from real traces and from the sources of the libraries. A kernel without a matching pattern
is unknown.
"""

import re
from functools import lru_cache
from typing import NamedTuple


class Communicating(NamedTuple):
    """Lower-case GLOB pattern of names of communication kernels, and the libraries that have such names."""

    glob: str
    source: str


class MatrixCores(NamedTuple):
    """Regular expression of kernel names, whether they use matrix cores, and the libraries that have such names."""

    pattern: str
    uses: bool
    source: str


class Precision(NamedTuple):
    """Regular expression of kernel names, and their precision: fixed, or that of the captured word."""

    pattern: str
    precision: str | None
    source: str


COMMUNICATING = (
    Communicating("*nccl*", "NCCL, RCCL: ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_SendRecv_RING_SIMPLE"),
    Communicating("*rccl*", "RCCL"),
    Communicating("*hccl*", "HCCL of Ascend and of Habana"),
    Communicating("hcom_*", "HCCL of Ascend: hcom_allReduce_"),
    Communicating("*oneccl*", "oneCCL of Intel"),
    Communicating("*mscclkernel*", "MSCCL, RCCL: mscclKernel_Sum_half_LL"),
    Communicating("*mscclpp*", "MSCCL++"),
    Communicating("*nvshmem*", "NVSHMEM: nvshmemi_proxy_rma_entrypoint; torch: c10d::nvshmem_extension::"),
    Communicating("*_on_stream_kernel*", "NVSHMEM: barrier_on_stream_kernel_threadgroup, alltoall_on_stream_kernel"),
    Communicating("*deep_ep*intranode*", "DeepEP: deep_ep::intranode::dispatch"),
    Communicating("*deep_ep*internode*", "DeepEP: deep_ep::internode::combine, deep_ep::internode_ll::dispatch"),
    Communicating("*hybrid_ep*", "DeepEP: hybrid_ep::dispatch_kernel"),
    Communicating("*multimem_*", "torch symmetric memory: multimem_one_shot_reduce_kernel, multimem_all_gather_kernel"),
    Communicating("*symmetric_memory*", "torch symmetric memory: c10d::symmetric_memory::barrier_kernel"),
    Communicating("*symm_mem*", "torch symmetric memory"),
    Communicating("*intra_node_comm*", "torch: c10d::intra_node_comm::"),
    Communicating("*cross_device_reduce*", "vLLM, SGLang, aiter: vllm::cross_device_reduce_1stage"),
    Communicating("*all_reduce*", "torch: two_shot_all_reduce_kernel_inplace; SGLang: all_reduce_1shot_push"),
    Communicating("*allreduce*", "TensorRT-LLM: oneShotAllReduceKernel; FlashInfer: allreduce_fusion_kernel"),
    Communicating("*reduce_scatter*", "torch symmetric memory; aiter: reduce_scatter_cross_device_store"),
    Communicating("*reducescatter*", "TensorRT-LLM and others"),
    Communicating("*all_gather*", "torch symmetric memory; aiter"),
    Communicating("*allgather*", "TensorRT-LLM, aiter: allgather_lastdim"),
    Communicating("*all_to_all*", "torch symmetric memory: all_to_all_vdev"),
    Communicating("*alltoall*", "TensorRT-LLM: moeAllToAllKernel; pplx-kernels; torch: allToAllV"),
    Communicating("*moea2a*", "TensorRT-LLM: moe_a2a::moeA2ADispatchKernel"),
    Communicating("*fusedmoecomm*", "TensorRT-LLM"),
    Communicating("*lamport*", "TensorRT-LLM, FlashInfer: rmsNormLamport, which waits for what other ranks write"),
    Communicating("*userbuffers*", "Transformer Engine, TensorRT-LLM: userbuffers_fp16_sum_inplace_gpu_rw_ag"),
    Communicating("*epdispatchint*node*", "MORI: EpDispatchInterNodeV1Kernel"),
    Communicating("*epcombineint*node*", "MORI: EpCombineIntraNodeKernel"),
)
"""Patterns of names of communication kernels, including those fused with computation."""

NOT_COMMUNICATING = "triton_???_fused_*"
"""GLOB pattern of Inductor's kernel names. They list the fused operators, and may contain the names of collectives."""

_LIBRARY_SHAPES = "884|1688|8816|8832|16816|16832|16864|161616|168128|168256"
"""M, N and K of tensor core instructions, as in the kernel names of NVIDIA's libraries."""

MATRIX_CORES = (
    MatrixCores(r"^(?:Memcpy|Memset)\b", False, "copies and memsets, which are not kernels"),
    # Auxiliary kernels of matrix multiplications, which later patterns would match.
    MatrixCores(r"splitKreduce|ReduceSplitK|splitk_?reduce", False, "cuBLASLt, CUTLASS: sums of split products"),
    MatrixCores(r"flash_fwd_\w*combine|FwdCombine|SplitKVCombine|MergeState", False, "flash attention"),
    MatrixCores(r"flash_bwd_(?:dot_do_o|convert|clear)|Bwd(?:Preprocess|Postprocess)", False, "flash attention"),
    MatrixCores(r"FmhaBwd(?:OGradDotO|ConvertQGrad)", False, "Composable Kernel"),
    MatrixCores(r"fmhaReductionKernel|kn_mla_reduce", False, "TensorRT-LLM, aiter"),
    MatrixCores(r"marlin_repack|marlin_\w*permute|awq_marlin_repack", False, "vLLM: Marlin's weights"),
    MatrixCores(r"compute\w*Offsets\w*Kernel|nchwToNhwc|nhwcToNchw|scalePackedTensor|im2col", False, "cuDNN"),
    # NVIDIA: cuBLAS, CUTLASS, cuDNN.
    MatrixCores(r"xmma\w*_(?:ffma|simt)_", False, "cuBLAS: sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_..._ffma_aligna4"),
    MatrixCores(r"cutlass\w*_simt_|OpClassSimt|MmaSimt|UniversalFMA", False, "CUTLASS: cutlass_80_simt_sgemm"),
    MatrixCores(r"\bnvjet_", True, "cuBLAS since 12: nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT"),
    MatrixCores(r"xmma_", True, "cuBLAS, cuDNN: sm90_xmma_gemm_bf16bf16_bf16f32_f32, sm80_xmma_fprop_implicit_gemm"),
    MatrixCores(r"tensorop|MmaTensorOp|OpClassTensorOp", True, "CUTLASS: cutlass_80_tensorop_s1688gemm"),
    MatrixCores(rf"(?:^|[_<: ])[hsdczbi](?:{_LIBRARY_SHAPES})(?=[a-z_])", True, "cuBLAS, cuDNN: volta_h884gemm"),
    MatrixCores(r"MainloopSm(?!70)\d+|(?i:wgmma|hmma|tcgen05|mfma)", True, "CUTLASS 3; names of instructions"),
    MatrixCores(r"cutlass3x_sm\d+", True, "cuBLAS: cutlass3x_sm100_s128x256_bgrada"),
    MatrixCores(r"dgrad_1x1_stride_2x2|conv1x1|conv2d_c1_k1", True, "cuDNN, as TensorBoard has it"),
    MatrixCores(r"first_layer_wgrad_kernel|direct_group", True, "cuDNN, as TensorBoard has it"),
    MatrixCores(r"tinygemm_m16n8k16", True, "torch: int4 products"),
    MatrixCores(r"cudnn_generated_\w*sdpa_\w*flash_[fb]prop", True, "cuDNN: attention"),
    # Attention.
    MatrixCores(r"flash_(?:fwd|bwd)_\w*kernel|FlashAttn(?:Fwd|Bwd)|FlashAttention\w*Sm\d", True, "flash attention"),
    MatrixCores(r"Sm\d+Fmha\w*Kernel|\bsm\d+::\w+::\w*attn_\w*kernel", True, "CUTLASS, FlashMLA: attention"),
    MatrixCores(r"\bfmhaSm\d+\w*Kernel|\bfmha_v2_", True, "TensorRT-LLM, FlashInfer: fmhaSm100aKernel_QkvE4m3"),
    MatrixCores(r"fmha_cutlass[FB]_(?:b?f16_\w*sm[789]|f32_\w*sm[89])", True, "torch, xFormers: fmha_cutlassF_bf16"),
    MatrixCores(r"fmha_cutlass[FB]_(?:f32_\w*sm[567]|f16_\w*sm[56])", False, "torch, xFormers, before Ampere"),
    MatrixCores(r"PrefillWith\w*KVCacheKernel", True, "FlashInfer: BatchPrefillWithPagedKVCacheKernel"),
    MatrixCores(r"BatchDecodeWith\w*KVCacheKernel|\bpaged_attention_v[12]_kernel", False, "FlashInfer, vLLM: decoding"),
    # Products of inference engines.
    MatrixCores(r"^(?:bmm|gemm|batchedGemm|gemmGatedAct)_\w+_sm\d+[af]?$", True, "TensorRT-LLM: bmm_E2m1_E2m1E2m1_..."),
    MatrixCores(r"\bmarlin(?:_moe)?\w*::Marlin|\bdeep_gemm::\w*gemm", True, "vLLM, DeepGEMM"),
    MatrixCores(r"^_matmul_ogs_|^_p_matmul_ogs_", True, "Triton's kernels: _matmul_ogs_NNT_bf16xbf16xmxfp4"),
    MatrixCores(r"^fused_moe_kernel|^kernel_unified_attention_[23]d", True, "vLLM, SGLang: tl.dot of 16 bits or fewer"),
    MatrixCores(r"^_w8a8_block_(?:fp8|int8)_matmul|^_scaled_mm_kernel", True, "vLLM, SGLang: tl.dot of 8 bits"),
    # AMD: Tensile (hipBLASLt, rocBLAS), Composable Kernel, MIOpen, aiter.
    MatrixCores(r"Cijk_\w*_MI\d+x\d+", True, "hipBLASLt, rocBLAS: Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1"),
    MatrixCores(r"Cijk_\w*_TT\d+_\d+", False, "rocBLAS: tiles of threads, and no matrix instruction"),
    MatrixCores(r"xdl(?:ops)?(?![a-z])", True, "Composable Kernel, MIOpen: kernel_grouped_conv_fwd_xdl_cshuffle_v3"),
    MatrixCores(r"ck_tile\w*?(?:Fmha(?:Fwd|Bwd)|Gemm|Flatmm)", True, "Composable Kernel"),
    MatrixCores(r"ck_tile\w*?(?:norm2d|Smoothquant|MoeSorting|Reduce|TopkSoftmax)", False, "Composable Kernel"),
    MatrixCores(r"\bigemm_\w+_gtcx\d*_", True, "MIOpen: igemm_fwd_gtcx3_nhwc_bf16; x is for xdlops"),
    MatrixCores(r"miopenSp3AsmConv_v\d+_\d+_\d+_gfx9", False, "MIOpen: Winograd"),
    MatrixCores(
        r"(?:_ZN5aiter\d+|^aiter::)(?:fmha_|fmoe_|mla_a|pa_(?:bf16|fp16)|\w*gemm|flatmm)", True, "aiter: assembly"
    ),
    # Kernels that compute without matrix cores.
    MatrixCores(r"(?:maxwell|pascal|volta|turing)_(?:fp16_)?[sdczh]gemm|ampere_[sc]gemm", False, "cuBLAS"),
    MatrixCores(r"(?<![a-z])scudnn_|winograd_nonfused|winograd::generate", False, "cuDNN: FP32 convolutions"),
    MatrixCores(r"[dw]grad\w*_engine<|(?:im|ex)plicit_convolve_sgemm<", False, "cuDNN: FP32 convolutions"),
    MatrixCores(r"reduce_wgrad_nchw|\bgemmSN_[NT]{2}_kernel<float", False, "cuDNN, cuBLAS: FP32"),
    MatrixCores(r"gemv|\bgemmk1_kernel|\bdot_kernel<|\breduce_1Block_kernel<", False, "cuBLAS: vectors"),
    MatrixCores(r"cudnn::(?:\w+::)*bn_[fb]w|softmax_warp|^SubTensorOp|^MIOpenBatchNorm", False, "cuDNN, MIOpen"),
    MatrixCores(r"^batched_transpose_|^transpose_|cunn_\w+Criterion", False, "MIOpen, torch"),
    MatrixCores(r"^triton_(?:poi|red|per|for)_fused", False, "Inductor: pointwise operators and reductions"),
    MatrixCores(r"\bat::(?:native|cuda)::|\bcub::|\bthrust::|\brocprim::|\bfbgemm_gpu::", False, "torch, CUB, FBGEMM"),
    MatrixCores(r"(?:split|dense)_embedding|bounds_check_indices|linearize_index", False, "FBGEMM"),
    MatrixCores(r"\bindexing_backward|\belementwise_kernel", False, "torch"),
    MatrixCores(r"(?i:rms_?norm|layer_?norm|rotary_embedding|RotaryPosIds|act_and_mul)", False, "vLLM, SGLang, aiter"),
    MatrixCores(r"reshape_and_cache|scaled_fp8_quant|quantize_with_block_size|topkGating", False, "vLLM, TensorRT-LLM"),
    MatrixCores(r"moe::dev::(?:finalize|routing|activation|permute)|moe_align_block_size", False, "TensorRT-LLM, vLLM"),
)
"""Patterns of the use of matrix cores (NVIDIA's tensor cores, AMD's MFMA); the first match counts."""

_WORDS = {
    "bf16": ("bf16", "bfloat16", "nv_bfloat16", "b", "t", "ttftt", "df16b"),
    "fp16": ("fp16", "f16", "half", "h", "df16_"),
    "tf32": ("tf32", "tfloat32", "x"),
    "fp32": ("fp32", "f32", "float", "s", "f"),
    "fp64": ("fp64", "f64", "double", "d"),
    "fp8": (
        "fp8",
        "f8",
        "e4m3",
        "e5m2",
        "mxe4m3",
        "ue4m3",
        "float_e4m3",
        "float_e5m2",
        "mx_float8",
        "nv_fp8_e4m3",
        "q",
        "r",
    ),
    "fp4": ("fp4", "f4", "e2m1", "mxe2m1", "float_e2m1", "nv_float4", "mx_float4", "o"),
    "int8": ("int8", "i8", "s8", "u8", "i"),
    "int4": ("int4", "i4", "s4"),
}
_OF_WORD = {word: precision for precision, words in _WORDS.items() for word in words}
_CUTLASS_TYPES = "bfloat16|half|tfloat32|float_e4m3|float_e5m2|float_e2m1|nv_float4|mx_float4|mx_float8"
_TYPES = "bf16|tf32|fp16|fp32|f16|f32|f64|e4m3|e5m2|f8|fp8|int8|i8|s8|u8"

PRECISIONS = (
    Precision(
        r"\bnvjet_(?:sm\d+_)?(?:([hstdi])[a-z]{2}|([qro])[qro][a-z]{3})_", None, "cuBLAS: letters of A and B, ..."
    ),
    Precision(r"xmma\w*?_(?:[a-z]+\d+)+_(bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8)(?:f32|f16|i32|f64)_", None, "cuBLAS"),
    Precision(r"\bbmm_\w+?_Mx(?:E2m1MxE4m3|E4m3MxE2m1)_", "fp8", "TensorRT-LLM: both are multiplied as FP8"),
    Precision(r"^(?:bmm|gemm\w*?|batchedGemm)_[A-Za-z0-9]+_(MxE\dm\d|E\dm\d|Bfloat16|Fp16)", None, "TensorRT-LLM"),
    Precision(r"\bfmhaSm\d+\w*?_Q(?:kv)?(E\dm\d|Bfloat16|Fp16)", None, "TensorRT-LLM"),
    Precision(r"fmha_cutlass[FB]_(bf16|f16|f32)_", None, "torch, xFormers"),
    Precision(r"^_p?_?matmul_ogs_[NT]+_\w+?x(bf16|fp16|fp32|fp8)x", None, "Triton's kernels: y, x and w; w is widened"),
    Precision(r"^_w8a8_block_(fp8|int8)_matmul", None, "vLLM, SGLang"),
    Precision(r"\bdeep_gemm::\w*?(fp8|bf16)_\w*gemm", None, "DeepGEMM"),
    Precision(r"\bdeep_gemm::fp8_gemm_kernel", "fp8", "DeepGEMM"),
    Precision(r"Cijk_\w{4}_\w{4}_(?:F8|B8)", "fp8", "hipBLASLt"),
    Precision(r"Cijk_\w{4}_\w{4}_I8", "int8", "hipBLASLt"),
    Precision(r"Cijk_\w{4}_\w{4}_([BHSD])(?:[BHS]*_|B)", None, "hipBLASLt, rocBLAS: BBS_BH, HHS_BH, SB, DB"),
    Precision(r"\bigemm_\w+?_(bf16|fp16|fp32|int8)_", None, "MIOpen"),
    Precision(
        r"xdl\w*?I(?:Li\d+E)*(?:NS_13tensor_layout\w*?_)?(t|DF16_|DF16b|f)(?=t|DF16|f)", None, "Composable Kernel"
    ),
    Precision(r"_ZN5aiter\d+f4gemm|per\w*MXfp4|_per1x32Fp4", "fp4", "aiter"),
    Precision(r"_ZN5aiter\d+fp8gemm|_ZN5aiter\w*?Fp8", "fp8", "aiter"),
    Precision(r"(?:_ZN5aiter\d+|^aiter::)(?:\w+_)?(bf16|fp16)", None, "aiter"),
    Precision(r"PrefillWith\w*KVCacheKernel.*?__(nv_bfloat16|half|nv_fp8_e4m3)", None, "FlashInfer"),
    Precision(
        rf"(?<![a-z0-9])(?:wmma_tensorop|tensorop)_({_TYPES})_", None, "CUTLASS: cutlass_80_tensorop_bf16_s16816"
    ),
    Precision(rf"_({_TYPES})_[shi](?:{_LIBRARY_SHAPES})", None, "cuBLAS: ampere_bf16_s16816gemm"),
    Precision(rf"(?:{_LIBRARY_SHAPES})\w*?_({_TYPES})_", None, "cuDNN: s1688dgrad_optimized_tf32; volta_s884gemm_fp16"),
    Precision(
        r"tensorop_[a-z]?[\dx]+gemm_(bf16|f16|tf32|e4m3|e5m2|f8|s8|f64)", None, "CUTLASS 3: cutlass3x_sm90_tensorop"
    ),
    Precision(rf"(?:^|[_<: ])(h|d|i)(?:{_LIBRARY_SHAPES})", None, "cuBLAS: volta_h884gemm"),
    Precision(r"(?:^|[_<: ])s1688(?=gemm)", "tf32", "CUTLASS: cutlass_80_tensorop_s1688gemm, of FP32 that is rounded"),
    Precision(r"tfloat32_t", "tf32", "CUTLASS"),
    Precision(rf"MainloopSm.*?(?<![a-z_])({_CUTLASS_TYPES})_t", None, "CUTLASS 3: the type of A comes first"),
    Precision(
        rf"(?:FlashAttn(?:Fwd|Bwd)Sm|flash_[fb]wd_(?:splitkv_|dq_\w+)?kernel)\w*<.*?::({_CUTLASS_TYPES})_t",
        None,
        "flash attention",
    ),
    Precision(r"(?:maxwell|pascal|volta|turing|ampere)_fp16_[sh]gemm", "fp16", "cuBLAS"),
    Precision(r"(?:maxwell|pascal|volta|turing|ampere|simt)_([sdh])gemm", None, "cuBLAS, CUTLASS"),
    Precision(r"(?<![a-z])scudnn_|(?:im|ex)plicit_convolve_sgemm<float|[dw]grad\w*_engine<float", "fp32", "cuDNN"),
)
"""Patterns of the precision of matrix multiplications; the first match counts."""

_NAMES_MAX = 1 << 16  # cached names; a trace has fewer
_CHARACTERS_MAX = 4096  # searched characters of a name; profilers write shorter ones

_USES = [(re.compile(entry.pattern, re.ASCII), entry.uses) for entry in MATRIX_CORES]
_PRECISIONS = [(re.compile(entry.pattern, re.ASCII), entry.precision) for entry in PRECISIONS]

_PARTS = [entry.glob.removesuffix("*").split("*") for entry in COMMUNICATING]
_NOT_COMMUNICATING = re.compile(re.escape(NOT_COMMUNICATING.removesuffix("*")).replace(r"\?", "[\\s\\S]"))
_LOWER = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}


@lru_cache(_NAMES_MAX)
def communicates(name: str) -> bool:
    """Return whether a kernel of this name communicates with other ranks, alone or fused with computation."""
    lower = name.lower() if name.isascii() else name.translate(_LOWER)  # like SQLite, which folds ASCII only
    return any(_matches(lower, parts) for parts in _PARTS) and not _NOT_COMMUNICATING.match(lower)


def _matches(name: str, parts: list[str]) -> bool:
    """Return whether a name starts with the first part and has the other parts after it, in order."""
    if not name.startswith(parts[0]):
        return False
    at = len(parts[0])
    for part in parts[1:]:
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@lru_cache(_NAMES_MAX)
def uses_matrix_cores(name: str) -> bool | None:
    """Return whether a kernel of this name uses tensor cores or AMD's matrix cores; None if unknown."""
    for pattern, uses in _USES:
        if pattern.search(name, 0, _CHARACTERS_MAX):
            return uses
    return False if communicates(name) else None


@lru_cache(_NAMES_MAX)
def precision(name: str) -> str | None:
    """Return the precision in which a kernel of this name multiplies matrices, like `bf16`; None if unknown.

    If the operands differ, the result is the precision of the wider operand, in which the kernel multiplies both.
    """
    for pattern, fixed in _PRECISIONS:
        if match := pattern.search(name, 0, _CHARACTERS_MAX):
            return fixed or _OF_WORD[next(filter(None, match.groups())).lower()]
    return None
