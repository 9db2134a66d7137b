#pragma once

#include <unordered_map>
#include <vector>

#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

/// Gradients that the device keeps in bf16, from allocate to free; those of vectors in f32. Each
/// contribution is computed in f32, on top of what is there, and then rounded to nearest even.
class RoundedGradients final : public GradientSink {
 public:
  /// Keeps the memory of parameters that have it. Throws OutOfMemory.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free();
  /// bf16, or f32 of a vector.
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, const Stream& stream) override;
  void contributed(const Parameter& parameter, const Stream& stream) override;

 private:
  struct Gradient {
    Tensor kept;
    Tensor wide{};  // f32, while a contribution to it is written
  };
  std::unordered_map<const Parameter*, Gradient> gradients_;
};

}  // namespace hybrid_trainer
