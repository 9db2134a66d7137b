#pragma once

#include <string>
#include <variant>
#include <vector>

#include "hybrid_trainer/kernels/eight_bit.h"
#include "hybrid_trainer/kernels/four_bit.h"
#include "hybrid_trainer/kernels/micro_scaling.h"
#include "hybrid_trainer/kernels/weight_blocks.h"
#include "hybrid_trainer/memory/frozen_weight.h"

namespace hybrid_trainer {

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
