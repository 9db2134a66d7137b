#include "memory/quantized_weight.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "memory/quantization.h"

namespace hybrid_trainer {

Tensor FrozenWeight::acquire(DType dtype, const Stream& stream) {
  return of(dtype).acquire([&] { return values_in(dtype, stream); });
}

void FrozenWeight::release(DType dtype, Use, const Stream&) noexcept { of(dtype).release(); }

FrozenRealWeight::FrozenRealWeight(const Tensor& values, DType dtype, const Stream& home)
    : values_(Tensor::empty(values.shape(), dtype, MemoryKind::kParameters, home)) {
  if (values.device().simulated) return;
  const Stream host(values.pool());
  const Tensor rounded = Tensor::empty(values.shape(), dtype, MemoryKind::kWorkspace, host);
  kernels::cast(rounded, values, host);
  wait_for_copy(values_, rounded, home);
}

bool FrozenRealWeight::stays(DType dtype, const Stream& stream) const {
  return values_.dtype() == dtype && values_.device().type == stream.device().type;
}

Tensor FrozenRealWeight::values_in(DType dtype, const Stream& stream) const {
  if (stays(dtype, stream)) return values_;
  Tensor here = Tensor::empty(values_.shape(), dtype, MemoryKind::kWorkspace, stream);
  kernels::cast(here, StagedTensor(values_, Use::kRead, stream), stream);
  return here;
}

namespace {

using kernels::BlockTensors, kernels::EightBitTensors, kernels::FourBitTensors,
    kernels::FourBitType, kernels::MicroScalingTensors;

void dequantize(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  const StagedTensor codes(from.codes, Use::kRead, stream), scales(from.scales, Use::kRead, stream);
  FourBitTensors here{codes, {}, scales, from.offset, from.type};
  if (!from.levels.defined()) return kernels::dequantize_four_bit(values, here, stream);
  const StagedTensor levels(from.levels, Use::kRead, stream);
  here.levels = levels;
  kernels::dequantize_four_bit(values, here, stream);
}

void dequantize(const Tensor& values, const EightBitTensors& from, const Stream& stream) {
  const StagedTensor codes(from.codes, Use::kRead, stream),
      magnitudes(from.magnitudes, Use::kRead, stream);
  kernels::dequantize_eight_bit(values, {codes, magnitudes}, stream);
}

void dequantize(const Tensor& values, const MicroScalingTensors& from, const Stream& stream) {
  const StagedTensor codes(from.codes, Use::kRead, stream),
      exponents(from.exponents, Use::kRead, stream);
  kernels::dequantize_micro_scaling(values, {codes, exponents}, stream);
}

void dequantize(const Tensor& values, const BlockTensors& from, const Stream& stream) {
  const StagedTensor bytes(from.bytes, Use::kRead, stream);
  kernels::dequantize_blocks(values, {bytes, from.format}, stream);
}

/// Returns a part's GGUF blocks if they are in host memory and the stream is on a CPU, else null.
const BlockTensors* blocks_of(const QuantizedRows& part, const Stream& stream) {
  const auto* const blocks = std::get_if<BlockTensors>(&part.tensors);
  const bool is_present = blocks != nullptr && stream.device().type == DeviceType::kCpu &&
                          blocks->bytes.device().type == DeviceType::kCpu;
  return is_present ? blocks : nullptr;
}

}  // namespace

QuantizedRows quantize_rows(const Tensor& values, const std::string& form, const Stream& home) {
  if (form == "int8") return {values.size(0), quantize_eight_bit(values, home)};
  if (form == "mxfp4") return {values.size(0), quantize_micro_scaling(values, home)};
  require(form == "nf4" || form == "fp4", "quantize_rows: want nf4, fp4, mxfp4 or int8");
  const FourBitType type = form == "nf4" ? FourBitType::kNormal : FourBitType::kFloat;
  return {values.size(0), quantize_four_bit(values, type, home)};
}

void dequantize_rows(const Tensor& values, const QuantizedRows& from, const Stream& stream) {
  std::visit([&](const auto& tensors) { dequantize(values, tensors, stream); }, from.tensors);
}

QuantizedWeight::QuantizedWeight(const Shape& shape, std::vector<QuantizedRows> parts)
    : shape_(shape), parts_(std::move(parts)) {
  std::int64_t rows = 0;
  for (const QuantizedRows& part : parts_) rows += part.rows;
  require(rows == shape_[0], "the parts of a quantized matrix must contain all its rows");
}

Tensor QuantizedWeight::values_in(DType dtype, const Stream& stream) const {
  Tensor values = Tensor::empty(shape_, dtype, MemoryKind::kWorkspace, stream);
  std::int64_t row = 0;
  for (const QuantizedRows& part : parts_) {
    dequantize_rows(values.rows(row, row + part.rows), part, stream);
    row += part.rows;
  }
  return values;
}

bool QuantizedWeight::multiply(const Tensor& y, const Tensor& x, const Tensor& bias,
                               const Tensor& residual, const Stream& stream) {
  const DeviceType device = stream.device().type;
  const auto is_present = [&](const QuantizedRows& part) {
    const auto* const tensors = std::get_if<FourBitTensors>(&part.tensors);
    return tensors != nullptr && tensors->codes.device().type == device;
  };
  if (multiply_blocks(y, x, bias, residual, stream)) return true;
  if (x.size(0) > kernels::kFewRows || x.size(1) % kernels::kFourBitBlock != 0 ||
      !std::ranges::all_of(parts_, is_present))
    return false;
  std::int64_t row = 0;
  for (const QuantizedRows& part : parts_) {
    kernels::four_bit_linear(y, x, {std::get<FourBitTensors>(part.tensors), row, part.rows}, bias,
                             residual, stream);
    row += part.rows;
  }
  return true;
}

bool QuantizedWeight::multiply_blocks(const Tensor& y, const Tensor& x, const Tensor& bias,
                                      const Tensor& residual, const Stream& stream) const {
  if (!rounds_inputs_) return false;
  std::vector<kernels::BlockRows> rows;
  for (const QuantizedRows& part : parts_) {
    const BlockTensors* const blocks = blocks_of(part, stream);
    if (blocks == nullptr) return false;
    rows.push_back({part.rows, *blocks});
  }
  kernels::block_linear(y, x, rows, bias, residual, stream);
  return true;
}

bool QuantizedWeight::look_up(const Tensor& y, const Tensor& indices, const Stream& stream) {
  const BlockTensors* const blocks = blocks_of(parts_.front(), stream);
  if (parts_.size() != 1 || blocks == nullptr) return false;
  kernels::gather_block_rows(y, indices, *blocks, stream);
  return true;
}

const void* QuantizedWeight::fixed_place() const {
  const auto codes = [](const auto& tensors) -> const void* {
    if constexpr (requires { tensors.codes; }) {
      return place_on_device(tensors.codes);
    } else {
      return place_on_device(tensors.bytes);
    }
  };
  return std::visit(codes, parts_.front().tensors);
}

}  // namespace hybrid_trainer
