#pragma once

#include <variant>

#include "hybrid_trainer/nn/parameter.h"
#include "kernels/quantized/quantization.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer {

/// A weight that is never changed, held in one form alone. Whoever acquires it in that form's dtype
/// where it lies on the stream's device reads it there; else a copy is made for the time of the
/// computation, in the workspace. There are no masters: home_master() is undefined.
class FrozenWeight : public WeightStorage {
 public:
  Tensor acquire(DType dtype, const Stream& stream) final;
  void release(DType dtype, Use use, const Stream& stream) noexcept final;
  Tensor home_master() const final { return {}; }
  void compute_in(DType dtype, const Stream&) final { compute_dtype_ = dtype; }
  DType compute_dtype() const final { return compute_dtype_; }
  void refresh_compute_copy(const Stream&) final {}

 protected:
  /// For fixed_place: null on the host.
  static const void* place_on_device(const Tensor& tensor) {
    return tensor.device().type == DeviceType::kCuda ? tensor.raw() : nullptr;
  }

 private:
  HeldValues& of(DType dtype) { return held_[dtype == DType::kBF16 ? 1 : 0]; }
  /// The values in the dtype on the stream's device.
  virtual Tensor values_in(DType dtype, const Stream& stream) const = 0;
  std::array<HeldValues, 2> held_;
  DType compute_dtype_ = DType::kF32;
};

/// In f32 or bf16.
class FrozenRealWeight final : public FrozenWeight {
 public:
  /// `values`: f32 on the host, or simulated; rounded to the dtype, they lie in the pool of `home`.
  FrozenRealWeight(const Tensor& values, DType dtype, const Stream& home);

 private:
  Tensor values_in(DType dtype, const Stream& stream) const override;
  const void* fixed_place() const override { return place_on_device(values_); }
  bool stays(DType dtype, const Stream& stream) const override;
  Tensor values_;
};

using QuantizedTensors = std::variant<kernels::FourBitTensors, kernels::EightBitTensors,
                                      kernels::MicroScalingTensors, kernels::BlockTensors>;

/// Consecutive rows of a matrix, quantized by themselves.
struct QuantizedRows {
  std::int64_t rows;
  QuantizedTensors tensors;
};

/// `values`, f32 (rows, columns) on the host, or simulated, as `form` of lora.base has them: nf4, fp4,
/// mxfp4 or int8. The tensors lie in the pool of `home`.
QuantizedRows quantize_rows(const Tensor& values, const std::string& form, const Stream& home);

/// values (rows, columns), f32 or bf16 on the stream's device = what the codes stand for, wherever
/// they lie.
void dequantize_rows(const Tensor& values, const QuantizedRows& from, const Stream& stream);

/// A frozen matrix that is quantized. Acquiring it makes values for the time of the computation.
class QuantizedWeight final : public FrozenWeight {
 public:
  /// `parts`: one under the other, all of its rows.
  QuantizedWeight(const Shape& shape, std::vector<QuantizedRows> parts);
  const std::vector<QuantizedRows>& parts() const { return parts_; }
  /// Few rows of x, and 4 bits on the stream's device; or a file's blocks on a processor, where inputs
  /// are rounded.
  bool multiply(const Tensor& y, const Tensor& x, const Tensor& bias, const Tensor& residual,
                const Stream& stream) override;
  /// Blocks of a file multiply inputs of 8 bits, as llama.cpp does; else a product reads their values.
  void round_inputs(bool rounds) override { rounds_inputs_ = rounds; }
  /// Of a file's blocks on a processor, of one format.
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
