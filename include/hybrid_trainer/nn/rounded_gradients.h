#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

/// Gradients that the device keeps in bf16, from allocate to free; those of vectors in f32. What
/// each product or other contribution adds is summed in f32, on top of what is there, and rounded to
/// nearest even.
class RoundedGradients final : public GradientSink {
 public:
  /// `wait_until_read` is called before what was kept in bf16 is overwritten.
  explicit RoundedGradients(std::function<void()> wait_until_read)
      : wait_until_read_(std::move(wait_until_read)) {}
  /// Keeps the memory of parameters that have it. Throws OutOfMemory.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free();
  /// bf16, or f32 of a vector.
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void contributed(const Parameter& parameter, const Stream& stream) override;

 private:
  struct Gradient {
    Tensor kept;
    Tensor wide{};  // f32, while a contribution to it is written
  };
  std::function<void()> wait_until_read_;
  std::unordered_map<const Parameter*, Gradient> gradients_;
};

}  // namespace hybrid_trainer
