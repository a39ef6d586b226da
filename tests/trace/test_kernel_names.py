"""Classification of kernels by name: communication, matrix cores and precision."""

import re
import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.sql import PACKAGE
from service.trace.kernel_names import (
    COMMUNICATING,
    MATRIX_CORES,
    NOT_COMMUNICATING,
    PRECISIONS,
    communicates,
    precision,
    uses_matrix_cores,
)

COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void (anonymous namespace)::multimem_one_shot_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**)",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, sglang::RankSignals, sglang::Signal*)",
    "void sglang::all_reduce_1shot_push<__nv_bfloat16, 8>(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8>(tensorrt_llm::kernels::AllReduceParams)",
    "void tensorrt_llm::kernels::moe_a2a::moeA2ADispatchKernel<8>(int)",
    "userbuffers_fp16_sum_inplace_gpu_rw_ag(int, int, int, int, int, int, void**, int)",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 8>(int)",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 8>, true>, __half>(int)",
    "reduce_scatter_cross_device_store",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int, int, int**, int)",
    "_ZN7deep_ep12internode_ll8dispatchILb1ELb1ELi6144EEEvPv",
    "EpDispatchInterNodeV1KernelLowLatency",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "mscclKernel_Sum_half_LL",
    "hcom_allReduce_",
)
COMPUTING = (
    "triton_red_fused_add_all_reduce_native_layer_norm_wait_tensor_3",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*, int*, int*, int*, bool*, int, int)",
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(cublasLt::cublasSplitKParams<float>)",
    "",
)
MATRICES: tuple[tuple[str, str | None], ...] = (
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "bf16"),
    ("nvjet_sm100_tst_32x64_64x16_4x1_v_bz_splitK_bias_TNN", "bf16"),
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "fp16"),
    ("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "fp8"),
    ("nvjet_ootst_128x64_256x5_1x2_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT", "fp4"),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "fp8"),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_sm100f", "fp8"),
    ("bmm_E2m1_E2m1E2m1_Fp32_t128x8x512u2_s4_et128x8_m128x8x64_cga1x1x1_16dp256b_TN_sm100f", "fp4"),
    ("bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_sm100a", "fp8"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(int)", "bf16"),
    ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(int)", "bf16"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(int)", "bf16"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(int)", "tf32"),
    (
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>(i)",
        "tf32",
    ),
    ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(int)", "fp64"),
    ("volta_h884gemm_64x128_ldg8_nn", "fp16"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "fp16"),
    ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nn", "fp16"),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", "bf16"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off", "bf16"),
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4", "tf32"),
    ("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x32", "fp8"),
    ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>>", "bf16"),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>(int)", "fp16"),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "bf16"),
    ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::MainloopFwd<2, cutlass::float_e4m3_t>>>", "fp8"),
    (
        (
            "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel<cutlass::gemm::kernel::GemmUniversal<"
            "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<4>,"
            " cutlass::float_e4m3_t, cutlass::float_e4m3_t>, cutlass::bfloat16_t>>>(int)"
        ),
        "fp8",
    ),
    (
        (
            "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS1_13CollectiveMmaINS1_35MainloopSm100TmaUmmaWarp"
            "SpecializedILi13ELi2ELi4ENS5_IJNS4_1CILi1EEEEEENS_10bfloat16_tENS5_IJlSB_lEEEE"
        ),
        "bf16",
    ),
    (
        (
            "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)0, 16u,"
            " __nv_bfloat16, __nv_bfloat16, float, int>, PagedParams>(PagedParams)"
        ),
        "bf16",
    ),
    ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576>, true>(Flash_fwd_mla_params)", None),
    ("aiter::fmha_fwd_hd128_bf16_causal_rtna_group", "bf16"),
    ("paged_attention_ll4mi_QKV_mfma16_kernel", None),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", None),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u>(float*)", "fp8"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "bf16"),
    ("fused_moe_kernel", None),
    ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_APM1", "bf16"),
    ("Cijk_Alik_Bljk_HHS_BH_MT128x64x32_MI32x32x8x1_SN_1LDSB1", "fp16"),
    ("Cijk_Alik_Bljk_SB_MT64x64x32_MI32x32x2x1_SN_1LDSB1", "fp32"),
    ("Cijk_Alik_Bljk_F8F8S_BH_UserArgs_MT256x256x128_MI16x16x1_SN", "fp8"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2", "bf16"),
    ("_ZN2ck6device37kernel_batched_gemm_xdlops_bwd_weightINS_18Gridwise_xdlops_bwd_weightILi64EttftLNS_25In", "bf16"),
    ("_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE", "bf16"),
    ("_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E", "fp8"),
    ("_ZN5aiter33f4gemm_bf16_per1x32Fp4_tn_256x256E", "fp4"),
)  # fmt: skip - one line for each
OTHERS: tuple[tuple[str, str | None], ...] = (
    ("volta_sgemm_64x64_nt", "fp32"),
    ("ampere_sgemm_32x32_sliced1x4_tn", "fp32"),
    ("volta_fp16_sgemm_fp16_64x32_sliced1x4_nn", "fp16"),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "fp32"),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(int)", "fp32"),
    ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu", "fp32"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4", "fp32"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(int)", None),
    ("void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::kernel::ReduceSplitK<int>>(int)", None),
    ("void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, cutlass::half_t>>(int)", None),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)", None),
    ("void moe::dev::finalize::finalizeKernelVecLoad<cutlass::bfloat16_t>(cutlass::bfloat16_t)", None),
    ("triton_poi_fused_add_mul_0", None),
    ("void flash_fwd_splitkv_mla_combine_kernel<float, cutlass::bfloat16_t>(int)", None),
    ("_ZN7ck_tile6kentryILi2ENS_22FmhaBwdOGradDotOKernelINS_2", None),
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1EEEvPT0_", None),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(int)", None),
    ("batched_transpose_32x32_half", None),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", None),
)  # fmt: skip - one line for each
UNKNOWN = ("my_kernel", "_topk_forward", "triton_tem_fused_mm_3", "fused_gemm_of_mine", "", "void foo<168160>(int)")


@pytest.mark.parametrize("name", COLLECTIVES)
def test_kernel_names_of_communication_libraries_communicate(name: str) -> None:
    assert communicates(name)


@pytest.mark.parametrize("name", COMPUTING)
def test_kernel_names_of_computation_do_not_communicate(name: str) -> None:
    assert not communicates(name)


@pytest.mark.parametrize(("name", "expected"), MATRICES)
def test_matrix_kernels_use_matrix_cores_in_a_precision(name: str, expected: str | None) -> None:
    assert uses_matrix_cores(name) is True
    assert precision(name) == expected
    assert not communicates(name)


@pytest.mark.parametrize(("name", "expected"), OTHERS)
def test_other_known_kernels_do_not_use_matrix_cores(name: str, expected: str | None) -> None:
    assert uses_matrix_cores(name) is False
    assert precision(name) == expected


@pytest.mark.parametrize("name", UNKNOWN)
def test_unmatched_kernel_names_are_unknown(name: str) -> None:
    assert uses_matrix_cores(name) is None
    assert precision(name) is None


def test_patterns_are_unique_and_name_their_libraries() -> None:
    for patterns in (
        [(entry.glob, entry.source) for entry in COMMUNICATING],
        [(entry.pattern, entry.source) for entry in MATRIX_CORES],
        [(entry.pattern, entry.source) for entry in PRECISIONS],
    ):
        assert all(source for _, source in patterns)
        assert len({pattern for pattern, _ in patterns}) == len(patterns)


@pytest.fixture(scope="module")
def globbed() -> Callable[[str], bool]:
    """Return a function that classifies a name by the same patterns, with SQLite's GLOB."""
    db = sqlite3.connect(":memory:")
    globs = " OR ".join(f"lower(:name) GLOB '{entry.glob}'" for entry in COMMUNICATING)
    query = f"SELECT ({globs}) AND NOT lower(:name) GLOB '{NOT_COMMUNICATING}'"
    return lambda name: bool(db.execute(query, {"name": name}).fetchone()[0])


_PIECES = re.findall(r"[a-z_]+", " ".join([NOT_COMMUNICATING, *(entry.glob for entry in COMMUNICATING)]))


@given(st.lists(st.sampled_from([*_PIECES, "x", "\n", "İ", "K", "_POI_", "."]) | st.text("aKkİ_*?[]^\n", max_size=4)))
def test_patterns_agree_in_python_and_sql(globbed: Callable[[str], bool], pieces: list[str]) -> None:
    for name in ("".join(pieces), "".join(pieces).upper()):
        assert communicates(name) == globbed(name), name


def test_sql_package_has_the_same_patterns() -> None:
    code = (PACKAGE / "collectives.sql").read_text()
    globs = re.findall(r"lower\(name\) GLOB '([^']*)'", code)
    assert globs == [*(entry.glob for entry in COMMUNICATING), NOT_COMMUNICATING]
