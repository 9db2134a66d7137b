#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/products/weight_decomposition.h"
#include "kernels/quantized/quantization.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

const DiagonalBlocks kBlocks{.count = 1, .rank = 2, .first_row = {1}, .rows = {3}};

const std::vector<DeviceCase> kAttention{
    {"attention_forward",
     {{"y", kCube}, {"log_sum_exp", {2, 2, 4}}, {"qkv", kWide}, {"sinks", {2}, DType::kF32}},
     [](const Tensors& t, const Stream& s) {
       attention_forward(t[0], t[1], t[2], Tensor(), AttentionSpec(2).with_sinks(t[3]), s);
     }},
    {"attention_backward",
     {{"dqkv", kWide}, {"dy", kCube}, {"y", kCube}, {"log_sum_exp", {2, 2, 4}}, {"qkv", kWide}},
     [](const Tensors& t, const Stream& s) {
       attention_backward(t[0], t[1], t[2], t[3], t[4], Tensor(), 2, s);
     }},
    {"attention_sinks_backward",
     {{"dsinks", {2}}, {"dy", kCube}, {"y", kCube}, {"log_sum_exp", {2, 2, 4}}, {"sinks", {2}}},
     [](const Tensors& t, const Stream& s) {
       attention_sinks_backward(t[0], kAdd, t[1], t[2], t[3], t[4], s);
     }},
    {"attention_bias_backward",
     {{"dbias", {2, 7}},
      {"dy", kCube},
      {"y", kCube},
      {"log_sum_exp", {2, 2, 4}},
      {"qkv", kWide},
      {"bias", {2, 7}}},
     [](const Tensors& t, const Stream& s) {
       attention_bias_backward(t[0], kAdd, t[1], t[2], t[3], t[4], Tensor(),
                               AttentionSpec(2).with_bias(t[5]), s);
     }},
    {"store_keys_values",
     {{"key_cache", kCube}, {"value_cache", kCube}, {"qkv", kWide}},
     [](const Tensors& t, const Stream& s) { store_keys_values(t[0], t[1], t[2], s); }},
    {"attention_decode",
     {{"y", {1, 4}},
      {"key_cache", kCube},
      {"value_cache", kCube},
      {"qkv", {1, 12}},
      {"texts", kOne, DType::kI32},
      {"positions", kOne, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       attention_decode(t[0], t[1], t[2], t[3], t[4], t[5], 2, s);
     }},
    {"cross_attention_forward",
     {{"y", kCube},
      {"log_sum_exp", {2, 2, 4}},
      {"q", kCube},
      {"kv", {2, 3, 8}},
      {"lengths", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       cross_attention_forward(t[0], t[1], t[2], t[3], t[4], 2, s);
     }},
    {"cross_attention_backward",
     {{"dq", kCube},
      {"dkv", {2, 3, 8}},
      {"dy", kCube},
      {"y", kCube},
      {"log_sum_exp", {2, 2, 4}},
      {"q", kCube},
      {"kv", {2, 3, 8}},
      {"lengths", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       cross_attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], 2, s);
     }},
    {"cross_attention_decode",
     {{"y", {1, 4}},
      {"q", {1, 4}},
      {"kv", {2, 3, 8}},
      {"texts", kOne, DType::kI32},
      {"lengths", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       cross_attention_decode(t[0], t[1], t[2], t[3], 1, t[4], 2, s);
     }},
};

const std::vector<DeviceCase> kDecoders{
    {"rms_norm_forward",
     {{"y", kMatrix}, {"rstd", kRow}, {"x", kMatrix}, {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       rms_norm_forward(t[0], t[1], t[2], t[3], {1e-5f}, s);
     }},
    {"rms_norm_backward",
     {{"dx", kMatrix},
      {"dweight", kRow},
      {"dy", kMatrix},
      {"x", kMatrix},
      {"rstd", kRow},
      {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       rms_norm_backward(t[0], kAdd, t[1], kAdd, t[2], t[3], t[4], t[5], {1e-5f}, s);
     }},
    {"rotate",
     {{"x", kCube}, {"table", {4, 2}}},
     [](const Tensors& t, const Stream& s) {
       rotate(t[0], 1, t[1], 0, Tensor(), Rotation::kForward, s);
     }},
    {"rms_norm_heads_forward",
     {{"x", kCube}, {"weight", {2}}},
     [](const Tensors& t, const Stream& s) {
       rms_norm_heads_forward(t[0], {0, 2}, t[1], {1e-5f}, s);
     }},
    {"rms_norm_heads_backward",
     {{"x", kCube}, {"dx", kCube}, {"weight", {2}}, {"dweight", {2}}},
     [](const Tensors& t, const Stream& s) {
       rms_norm_heads_backward(t[1], t[3], kAdd, t[0], {0, 2}, t[2], {1e-5f}, s);
     }},
    {"cap_forward",
     {{"y", kMatrix}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { cap_forward(t[0], t[1], 1, s); }},
    {"cap_backward",
     {{"dx", kMatrix}, {"dy", kMatrix}, {"y", kMatrix}},
     [](const Tensors& t, const Stream& s) { cap_backward(t[0], t[1], t[2], 1, s); }},
    {"clip",
     {{"y", kMatrix}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { clip(t[0], t[1], 1, s); }},
    {"clip_backward",
     {{"dx", kMatrix}, {"dy", kMatrix}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { clip_backward(t[0], t[1], t[2], 1, s); }},
    {"gated_forward",
     {{"y", {3, 4}}, {"x", {3, 8}}},
     [](const Tensors& t, const Stream& s) { gated_forward(t[0], t[1], Gate::kSilu, s); }},
    {"spread_blocks",
     {{"wide", {4, 2}}, {"stacked", {3, 2}}},
     [](const Tensors& t, const Stream& s) { spread_blocks(t[0], t[1], kBlocks, 1, s); }},
    {"gather_blocks",
     {{"stacked", {3, 2}}, {"wide", {4, 2}}},
     [](const Tensors& t, const Stream& s) { gather_blocks(t[0], t[1], kBlocks, 1, kAdd, s); }},
    {"row_norms",
     {{"norms", kRow}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { row_norms(t[0], t[1], s); }},
    {"magnitude_factors",
     {{"factors", kRow}, {"magnitudes", {3}}, {"norms", kRow}},
     [](const Tensors& t, const Stream& s) { magnitude_factors(t[0], t[1], t[2], kBlocks, s); }},
    {"gather_rows",
     {{"stacked", {3}}, {"wide", kRow}, {"norms", kRow}},
     [](const Tensors& t, const Stream& s) { gather_rows(t[0], t[1], t[2], kBlocks, kAdd, s); }},
    {"scale_columns",
     {{"y", kMatrix}, {"x", kMatrix}, {"factors", kRow}, {"bias", kRow}, {"residual", kMatrix}},
     [](const Tensors& t, const Stream& s) { scale_columns(t[0], t[1], t[2], t[3], t[4], s); }},
    {"multiply",
     {{"y", kRow}, {"x", kRow}, {"z", kRow}},
     [](const Tensors& t, const Stream& s) { multiply(t[0], t[1], t[2], s); }},
    {"dequantize_four_bit",
     {{"values", kRow}, {"codes", {2}, DType::kU8}, {"levels", kOne, DType::kU8}, {"scales", kOne}},
     [](const Tensors& t, const Stream& s) {
       dequantize_four_bit(t[0], {t[1], t[2], t[3]}, s);
     }},
    {"four_bit_linear",
     {{"y", {3, 2}},
      {"x", {3, 64}},
      {"codes", {64}, DType::kU8},
      {"levels", {2}, DType::kU8},
      {"scales", kOne},
      {"bias", {2}},
      {"residual", {3, 2}}},
     [](const Tensors& t, const Stream& s) {
       four_bit_linear(t[0], t[1], {{t[2], t[3], t[4]}, 0, 2}, t[5], t[6], s);
     }},
    {"quantize_four_bit",
     {{"values", kRow}, {"codes", {2}, DType::kU8}, {"scales", kOne}},
     [](const Tensors& t, const Stream& s) {
       quantize_four_bit({t[1], {}, t[2]}, t[0], s);
     }},
    {"dequantize_eight_bit",
     {{"values", {3, 4}}, {"codes", {3, 4}, DType::kI8}, {"magnitudes", {3}}},
     [](const Tensors& t, const Stream& s) {
       dequantize_eight_bit(t[0], {t[1], t[2]}, s);
     }},
    {"dequantize_micro_scaling",
     {{"values", {3, 32}}, {"codes", {3, 16}, DType::kU8}, {"exponents", {3, 1}, DType::kU8}},
     [](const Tensors& t, const Stream& s) {
       dequantize_micro_scaling(t[0], {t[1], t[2]}, s);
     }},
    {"clamped_gate_forward",
     {{"y", {3, 4}}, {"x", {3, 8}}},
     [](const Tensors& t, const Stream& s) { clamped_gate_forward(t[0], t[1], {}, s); }},
    {"clamped_gate_backward",
     {{"dx", {3, 8}}, {"dy", {3, 4}}, {"x", {3, 8}}},
     [](const Tensors& t, const Stream& s) { clamped_gate_backward(t[0], t[1], t[2], {}, s); }},
    {"gated_backward",
     {{"dx", {3, 8}}, {"dy", {3, 4}}, {"x", {3, 8}}},
     [](const Tensors& t, const Stream& s) { gated_backward(t[0], t[1], t[2], Gate::kSilu, s); }},
};

INSTANTIATE_TEST_SUITE_P(Layers, CheckDevice, ::testing::Values(&kAttention, &kDecoders),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
