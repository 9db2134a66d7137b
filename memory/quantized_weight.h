#pragma once

#include <variant>

#include "hybrid_trainer/nn/parameter.h"
#include "kernels/quantized/quantization.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer {

/// A weight that never changes, stored in one format. Acquiring it in the dtype of its format on
/// the device that stores it makes no copy. Any other use makes a temporary copy in the workspace.
/// There are no masters: master_in_place() is undefined.
class FrozenWeight : public WeightStorage {
 public:
  Tensor acquire(DType dtype, const Stream& stream) final;
  void release(DType dtype, Use use, const Stream& stream) noexcept final;
  Tensor master_in_place() const final { return {}; }
  void compute_in(DType dtype, const Stream&) final { compute_dtype_ = dtype; }
  DType compute_dtype() const final { return compute_dtype_; }
  void refresh_compute_copy(const Stream&) final {}

 protected:
  /// Implements fixed_place; null on the host.
  static const void* place_on_device(const Tensor& tensor) {
    return tensor.device().type == DeviceType::kCuda ? tensor.raw() : nullptr;
  }

 private:
  HeldValues& of(DType dtype) { return held_[dtype == DType::kBF16 ? 1 : 0]; }
  /// Returns the values in `dtype` on the stream's device.
  virtual Tensor values_in(DType dtype, const Stream& stream) const = 0;
  std::array<HeldValues, 2> held_;
  DType compute_dtype_ = DType::kF32;
};

/// A frozen weight in f32 or bf16.
class FrozenRealWeight final : public FrozenWeight {
 public:
  /// `values`: f32 on the host, or simulated. They are rounded to `dtype`, in the pool of `home`.
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

/// Quantizes `values`, f32 (rows, columns) on the host or simulated, to a `form` of lora.base: nf4,
/// fp4, mxfp4 or int8. The tensors are in the pool of `home`.
QuantizedRows quantize_rows(const Tensor& values, const std::string& form, const Stream& home);

/// Writes dequantized values (rows, columns), f32 or bf16 on the stream's device.
void dequantize_rows(const Tensor& values, const QuantizedRows& from, const Stream& stream);

/// A frozen quantized matrix. Acquiring it dequantizes it temporarily.
class QuantizedWeight final : public FrozenWeight {
 public:
  /// `parts`: all rows, from top to bottom.
  QuantizedWeight(const Shape& shape, std::vector<QuantizedRows> parts);
  const std::vector<QuantizedRows>& parts() const { return parts_; }
  /// Supports few rows of x with 4-bit weights on the stream's device; a file's blocks on a CPU
  /// with rounded inputs.
  bool multiply(const Tensor& y, const Tensor& x, const Tensor& bias, const Tensor& residual,
                const Stream& stream) override;
  /// True multiplies a file's blocks by 8-bit inputs, as llama.cpp does; false dequantizes them.
  void round_inputs(bool rounds) override { rounds_inputs_ = rounds; }
  /// Supports a file's blocks of a single format on a CPU.
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
