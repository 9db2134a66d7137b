#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/backend/machine.h"
#include "kernels/products/product_rounding.h"
#include "kernels/quantized/quantization.h"
#include "kernels/updates/optimizer_update.h"
#include "kernels/updates/predicted_update.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr auto kSet = GradientMode::kOverwrite;
constexpr auto kPlain = Transpose::kNo;

const std::vector<DeviceCase> kElementwise{
    {"add",
     {{"y", kRow}, {"x", kRow}, {"z", kRow}},
     [](const Tensors& t, const Stream& s) { add(t[0], t[1], t[2], s); }},
    {"scale",
     {{"y", kRow}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { scale(t[0], t[1], 2, s); }},
    {"normalize",
     {{"y", kRow}, {"x", kRow}, {"squares", kOne, DType::kF64}},
     [](const Tensors& t, const Stream& s) { normalize(t[0], t[1], t[2], 1, s); }},
    {"axpy",
     {{"y", kRow}, {"from", kRow}, {"direction", kRow}},
     [](const Tensors& t, const Stream& s) { axpy(t[0], t[1], 1, t[2], s); }},
    {"cast",
     {{"y", kRow}, {"x", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) { cast(t[0], t[1], s); }},
    {"gelu_forward",
     {{"y", kRow}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { gelu_forward(t[0], t[1], s); }},
    {"gelu_backward",
     {{"dx", kRow}, {"dy", kRow}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { gelu_backward(t[0], t[1], t[2], s); }},
    {"largest_magnitude",
     {{"largest", kOne}, {"most", kOne}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { largest_magnitude(t[0], t[1], t[2], s); }},
    {"round_to_float8",
     {{"to", kRow}, {"from", kRow}, {"expected", kOne}, {"largest", kOne}},
     [](const Tensors& t, const Stream& s) {
       round_to_float8(t[0], t[1], Float8::kE4M3, t[2], t[3], s);
     }},
    {"round_to_half",
     {{"to", kRow}, {"from", kRow}},
     [](const Tensors& t, const Stream& s) { round_to_half(t[0], t[1], s); }},
    {"dropout",
     {{"y", kRow}, {"x", kRow}, {"step_words", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) { dropout(t[0], t[1], 0.5f, {.step_words = t[2]}, s); }},
};

const std::vector<DeviceCase> kMatmul{
    {"matmul",
     {{"C", kMatrix}, {"A", kMatrix}, {"B", kMatrix}},
     [](const Tensors& t, const Stream& s) { matmul(t[0], t[1], kPlain, t[2], kPlain, kSet, s); }},
    {"linear_forward",
     {{"y", kMatrix}, {"x", kMatrix}, {"w", kMatrix}, {"bias", kRow}, {"residual", kMatrix}},
     [](const Tensors& t, const Stream& s) { linear_forward(t[0], t[1], t[2], t[3], t[4], s); }},
    {"linear_gelu_forward",
     {{"active", kMatrix},
      {"pre_activation", kMatrix},
      {"x", kMatrix},
      {"w", kMatrix},
      {"bias", kRow}},
     [](const Tensors& t, const Stream& s) {
       linear_gelu_forward(t[0], t[1], t[2], t[3], t[4], s);
     }},
    {"linear_gelu_backward_input",
     {{"dpre_activation", kMatrix}, {"dy", kMatrix}, {"w", kMatrix}, {"pre_activation", kMatrix}},
     [](const Tensors& t, const Stream& s) {
       linear_gelu_backward_input(t[0], t[1], t[2], t[3], s);
     }},
    {"bias_backward",
     {{"dbias", kRow}, {"dy", kMatrix}},
     [](const Tensors& t, const Stream& s) { bias_backward(t[0], t[1], kSet, s); }},
    {"linear_backward_parameters",
     {{"dw", kMatrix}, {"dbias", kRow}, {"dy", kMatrix}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) {
       linear_backward_parameters(t[0], t[1], t[2], t[3], kSet, s);
     }},
};

const std::vector<DeviceCase> kRows{
    {"layer_norm_forward",
     {{"y", kMatrix},
      {"mean", kRow},
      {"rstd", kRow},
      {"x", kMatrix},
      {"weight", kRow},
      {"bias", kRow}},
     [](const Tensors& t, const Stream& s) {
       layer_norm_forward(t[0], t[1], t[2], t[3], t[4], t[5], 1e-5f, s);
     }},
    {"layer_norm_backward",
     {{"dx", kMatrix},
      {"dweight", kRow},
      {"dbias", kRow},
      {"dy", kMatrix},
      {"x", kMatrix},
      {"mean", kRow},
      {"rstd", kRow},
      {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       layer_norm_backward(t[0], kAdd, t[1], t[2], kAdd, t[3], t[4], t[5], t[6], t[7], s);
     }},
    {"softmax_cross_entropy",
     {{"losses", kRow}, {"logits", kMatrix}, {"targets", kRow, DType::kI32}},
     [](const Tensors& t, const Stream& s) { softmax_cross_entropy(t[0], t[1], t[2], 4, 1, s); }},
    {"smoothed_cross_entropy",
     {{"losses", kRow}, {"logits", kMatrix}, {"targets", kRow, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       smoothed_cross_entropy(t[0], t[1], t[2], {4, 0.1f}, 1, s);
     }},
    {"regression_loss",
     {{"losses", kRow}, {"x", kRow}, {"targets", kRow}},
     [](const Tensors& t, const Stream& s) {
       regression_loss(t[0], t[1], t[2], Distance::kHuber, 1, 1, s);
     }},
    {"grid_loss",
     {{"losses", kRow},
      {"x", {kRow[0], 8}},
      {"classes", kRow, DType::kI32},
      {"boxes", {kRow[0], 4}}},
     [](const Tensors& t, const Stream& s) { grid_loss(t[0], t[1], t[2], t[3], {}, 1, s); }},
    {"preference_loss",
     {{"losses", kMatrix},
      {"halves", kMatrix, DType::kI32},
      {"references", kMatrix},
      {"pair_losses", kMatrix},
      {"weights", kMatrix},
      {"sums", kMatrix, DType::kF64},
      {"measures", {kPreferenceMeasures}, DType::kF64}},
     [](const Tensors& t, const Stream& s) {
       preference_loss({t[0], t[1], t[2], t[3], t[4], t[5], t[6]}, {}, s);
     }},
    {"scale_rows",
     {{"x", kMatrix}, {"factors", kRow}},
     [](const Tensors& t, const Stream& s) { scale_rows(t[0], t[1], s); }},
    {"embedding_forward",
     {{"y", kCube},
      {"tokens", {2, 4}, DType::kI32},
      {"token_table", kMatrix},
      {"position_table", kMatrix}},
     [](const Tensors& t, const Stream& s) { embedding_forward(t[0], t[1], t[2], t[3], 0, s); }},
    {"embedding_backward",
     {{"dtoken_table", kMatrix},
      {"dposition_table", kMatrix},
      {"dy", kCube},
      {"tokens", {2, 4}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       embedding_backward(t[0], kAdd, t[1], kAdd, t[2], t[3], s);
     }},
    {"gather_columns",
     {{"columns", {2, 3}}, {"x", {3, 8}}, {"indices", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) { gather_columns(t[0], t[1], t[2], s); }},
    {"scatter_columns",
     {{"x", {3, 8}}, {"columns", {2, 3}}, {"indices", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) { scatter_columns(t[0], t[1], t[2], s); }},
};

const std::vector<DeviceCase> kUpdates{
    {"adamw_update",
     {{"w", kRow}, {"m", kRow}, {"v", kRow}, {"g", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       adamw_update(t[0], t[1], t[2], t[3], t[4], kAdamW, s);
     }},
    {"adamw_updates",
     {{"w", kRow}, {"m", kRow}, {"v", kRow}, {"g", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       adamw_updates({{t[0], t[1], t[2], t[3], t[4], kAdamW}}, s);
     }},
    {"adamw_direction",
     {{"direction", kRow}, {"m", kRow}, {"v", kRow}},
     [](const Tensors& t, const Stream& s) { adamw_direction(t[0], t[1], t[2], kAdamW, s); }},
    {"adamw_update_8bit",
     {{"w", kRow},
      {"m_codes", kRow, DType::kU8},
      {"m_scales", kOne},
      {"v_codes", kRow, DType::kU8},
      {"v_scales", kOne},
      {"g", kRow},
      {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       adamw_update_8bit(t[0], {t[1], t[2], t[3], t[4]}, t[5], t[6], kAdamW, s);
     }},
    {"adamw_direction_8bit",
     {{"direction", kRow},
      {"m_codes", kRow, DType::kU8},
      {"m_scales", kOne},
      {"v_codes", kRow, DType::kU8},
      {"v_scales", kOne}},
     [](const Tensors& t, const Stream& s) {
       adamw_direction_8bit(t[0], {t[1], t[2], t[3], t[4]}, kAdamW, s);
     }},
    {"sgd_update",
     {{"w", kRow}, {"m", kRow}, {"g", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       sgd_update(t[0], t[1], t[2], t[3], 0.1f, 0.9f, 0, 1, s);
     }},
    {"lion_update",
     {{"w", kRow}, {"m", kRow}, {"g", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) { lion_update(t[0], t[1], t[2], t[3], {}, s); }},
    {"lion_update_8bit",
     {{"w", kRow},
      {"m_codes", kRow, DType::kU8},
      {"m_scales", kOne},
      {"g", kRow},
      {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       lion_update_8bit(t[0], t[1], t[2], t[3], t[4], {}, s);
     }},
    {"adam_mini_update",
     {{"w", kRow}, {"m", kRow}, {"v", kOne}, {"g", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       adam_mini_update(t[0], t[1], t[2], t[3], t[4], kAdamW, s);
     }},
    {"adam_mini_direction",
     {{"direction", kRow}, {"m", kRow}, {"v", kOne}},
     [](const Tensors& t, const Stream& s) { adam_mini_direction(t[0], t[1], t[2], kAdamW, s); }},
    {"adafactor_update",
     {{"w", kRow},
      {"rows", kOne},
      {"columns", kRow},
      {"g", kRow},
      {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) {
       adafactor_update(t[0], t[1], t[2], t[3], t[4], {}, s);
     }},
    {"lion_direction",
     {{"direction", kRow}, {"m", kRow}},
     [](const Tensors& t, const Stream& s) { lion_direction(t[0], t[1], 0.1f, s); }},
    {"muon_momentum",
     {{"u", kRow}, {"m", kRow}, {"g", kRow}, {"squares", {1}, DType::kF64}},
     [](const Tensors& t, const Stream& s) { muon_momentum(t[0], t[1], t[2], t[3], 0.9f, 1, s); }},
    {"decayed_step",
     {{"w", kRow}, {"u", kRow}, {"compute_copy", kRow, DType::kBF16}},
     [](const Tensors& t, const Stream& s) { decayed_step(t[0], t[1], t[2], 0.1f, 1, s); }},
};

const std::vector<DeviceCase> kPredictions{
    {"row_and_column_means",
     {{"rows", kRow}, {"columns", kRow}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { row_and_column_means(t[0], t[1], t[2], 1, true, s); }},
    {"predicted_adamw",
     {{"w", kMatrix},
      {"base", kMatrix},
      {"m", kMatrix, DType::kU8},
      {"m_scales", kOne},
      {"v_rows", kRow},
      {"v_columns", kRow},
      {"gradient", kMatrix},
      {"rows", kRow},
      {"columns", kRow}},
     [](const Tensors& t, const Stream& s) {
       const GradientInFlight one{t[6], t[7], t[8]};
       predicted_adamw(t[0], t[1], {t[2], t[3]}, t[4], t[5], {&one, 1}, true, kAdamW, s);
     }},
    {"predicted_lion",
     {{"w", kRow}, {"base", kRow}, {"m", kRow}, {"gradient", kRow}},
     [](const Tensors& t, const Stream& s) {
       const GradientInFlight one{t[3], {}, {}};
       predicted_lion(t[0], t[1], {t[2], {}}, {&one, 1}, true, {}, s);
     }},
    {"in_flight_squares",
     {{"squares", kOne, DType::kF64}, {"gradient", kRow}},
     [](const Tensors& t, const Stream& s) {
       const GradientInFlight one{t[1], {}, {}};
       in_flight_squares(t[0], {&one, 1}, 0.9f, s);
     }},
    {"predicted_muon",
     {{"w", kMatrix},
      {"base", kMatrix},
      {"momentum_squares", kOne, DType::kF64},
      {"squares", kOne, DType::kF64},
      {"gradient", kMatrix}},
     [](const Tensors& t, const Stream& s) {
       const GradientInFlight one{t[4], {}, {}};
       predicted_muon(t[0], t[1], t[2], t[3], {&one, 1}, 0.9f, 1, 0, s);
     }},
};

const std::vector<DeviceCase> kOthers{
    {"quantize",
     {{"codes", kRow, DType::kU8}, {"scales", kOne}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) {
       quantize(t[0], t[1], t[2], QuantizationMap::kSigned, s);
     }},
    {"dequantize",
     {{"x", kRow}, {"codes", kRow, DType::kU8}, {"scales", kOne}},
     [](const Tensors& t, const Stream& s) {
       dequantize(t[0], t[1], t[2], QuantizationMap::kSigned, s);
     }},
    {"dot",
     {{"result", kOne, DType::kF64}, {"x", kRow}, {"y", kRow}},
     [](const Tensors& t, const Stream& s) {
       dot(t[0], {&t[1], 1}, {&t[2], 1}, {}, s);
     }},
    {"chunk_dots",
     {{"results", kOne, DType::kF64}, {"x", kRow}, {"y", kRow}},
     [](const Tensors& t, const Stream& s) { chunk_dots(t[0], t[1], t[2], s); }},
    {"quotient",
     {{"result", kOne, DType::kF64}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { quotient(t[0], t[1], 4, s); }},
    {"find_all_bits",
     {{"bits", kOne, DType::kI32}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) { find_all_bits(t[0], t[1], s); }},
};

/// Tensors of the case, on the stream's device except the tensor at `elsewhere`.
Tensors tensors_of(const DeviceCase& one, std::size_t elsewhere, const Stream& stream,
                   const Stream& other) {
  Tensors tensors;
  for (const Argument& argument : one.arguments) {
    const Stream& home = tensors.size() == elsewhere ? other : stream;
    tensors.push_back(
        Tensor::zeros(argument.shape, argument.dtype, MemoryKind::kActivations, home));
  }
  return tensors;
}

void expect_refused(const DeviceCase& one, std::size_t elsewhere, const Stream& stream,
                    const Stream& other) {
  const std::string wanted =
      concat(one.kernel, ": ", one.arguments[elsewhere].name, " is on ", name_of(other.device()),
             ", but the stream is on ", name_of(stream.device()));
  try {
    one.call(tensors_of(one, elsewhere, stream, other), stream);
    ADD_FAILURE() << "no error, want " << wanted;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos)
        << error.what() << "\nlacks " << wanted;
  }
}

TEST_P(CheckDevice, RefusesTensorsOnAnotherDevice) {
  const Stream host = cpu_stream();
  const Stream device = cuda_stream();
  const Stream simulated(
      MemoryPool::create("simulated", {}, simulated_memory({DeviceType::kCuda})));
  for (const DeviceCase& one : *GetParam()) {
    for (std::size_t i = 0; i < one.arguments.size(); ++i) {
      expect_refused(one, i, device, host);
      expect_refused(one, i, simulated, host);
      expect_refused(one, i, host, device);
    }
    const Tensors on_device = tensors_of(one, one.arguments.size(), device, host);
    EXPECT_NO_THROW(one.call(tensors_of(one, one.arguments.size(), host, device), host));
    EXPECT_NO_THROW(one.call(on_device, device));
    EXPECT_NO_THROW(one.call(on_device, simulated)) << "the measurement of a recording does this";
    device.synchronize();
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CheckDevice,
                         ::testing::Values(&kElementwise, &kMatmul, &kRows, &kUpdates,
                                           &kPredictions, &kOthers),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
