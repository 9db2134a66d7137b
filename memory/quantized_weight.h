#pragma once

#include <variant>

#include "hybrid_trainer/nn/parameter.h"
#include "kernels/quantized/quantization.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer {

/// A frozen weight in one format, without master weights. If the device stores it in the requested
/// dtype, acquire makes no copy; otherwise it makes a temporary one in the workspace.
class FrozenWeight : public WeightStorage {
 public:
  Tensor acquire(DType dtype, const Stream& stream) final;
  void release(DType dtype, Use use, const Stream& stream) noexcept final;
  Tensor master_in_place() const final { return {}; }
  void compute_in(DType dtype, const Stream&) final { compute_dtype_ = dtype; }
  DType compute_dtype() const final { return compute_dtype_; }
  void refresh_compute_copy(const Stream&) final {}

 protected:
  /// Returns the address for fixed_place, or null if the tensor is on the host.
  static const void* place_on_device(const Tensor& tensor) {
    return tensor.device().type == DeviceType::kCuda ? tensor.raw() : nullptr;
  }

 private:
  HeldValues& of(DType dtype) { return held_[dtype == DType::kBF16 ? 1 : 0]; }
  virtual Tensor values_in(DType dtype, const Stream& stream) const = 0;
  std::array<HeldValues, 2> held_;
  DType compute_dtype_ = DType::kF32;
};

class FrozenRealWeight final : public FrozenWeight {
 public:
  /// Stores `values`, f32 on the host or simulated, rounded to `dtype` in the pool of `home`.
  FrozenRealWeight(const Tensor& values, DType dtype, const Stream& home);

 private:
  Tensor values_in(DType dtype, const Stream& stream) const override;
  const void* fixed_place() const override { return place_on_device(values_); }
  bool stays(DType dtype, const Stream& stream) const override;
  Tensor values_;
};

using QuantizedTensors = std::variant<kernels::FourBitTensors, kernels::EightBitTensors,
                                      kernels::MicroScalingTensors, kernels::BlockTensors>;

/// Consecutive rows of a matrix, quantized separately.
struct QuantizedRows {
  std::int64_t rows;
  QuantizedTensors tensors;
};

/// Quantizes `values`, f32 (rows, columns) on the host or simulated, to `form`, a format of
/// lora.base: nf4, fp4, mxfp4 or int8. The results are in the pool of `home`.
QuantizedRows quantize_rows(const Tensor& values, const std::string& form, const Stream& home);

/// Writes the dequantized rows to `values` (rows, columns), f32 or bf16 on the stream's device.
void dequantize_rows(const Tensor& values, const QuantizedRows& from, const Stream& stream);

class QuantizedWeight final : public FrozenWeight {
 public:
  QuantizedWeight(const Shape& shape, std::vector<QuantizedRows> parts);
  const std::vector<QuantizedRows>& parts() const { return parts_; }
  /// Multiplies without dequantizing in two cases: few rows of x and 4-bit weights on the stream's
  /// device, or blocks of a GGUF file on a CPU with rounded inputs. Otherwise returns false.
  bool multiply(const Tensor& y, const Tensor& x, const Tensor& bias, const Tensor& residual,
                const Stream& stream) override;
  /// Sets whether products with GGUF blocks round inputs to 8 bits, like llama.cpp.
  void round_inputs(bool rounds) override { rounds_inputs_ = rounds; }
  /// Looks up rows in GGUF blocks on a CPU. Returns false for other storage, or if the rows have
  /// several formats.
  bool look_up(const Tensor& y, const Tensor& indices, const Stream& stream) override;

 private:
  bool multiply_blocks(const Tensor& y, const Tensor& x, const Tensor& bias, const Tensor& residual,
                       const Stream& stream) const;
  Tensor values_in(DType dtype, const Stream& stream) const override;
  const void* fixed_place() const override;
  Shape shape_;
  std::vector<QuantizedRows> parts_;
  bool rounds_inputs_ = false;
};

}  // namespace hybrid_trainer
