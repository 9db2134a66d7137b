#pragma once

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

const char* precision_name(const Precision& precision);
/// Returns the precision named `name`. Separate kernels round the operands of fp16 and fp8 products
/// (nn/product_rounding.h), so activations are f32, or bf16 for fp8 on CUDA.
Precision precision_named(const std::string& name, Device device);

/// The precision chosen for "auto".
struct AutomaticPrecision {
  DType dtype = DType::kF32;
  std::string reason;  // one line for the user
};

/// Returns bf16 on CUDA, and on a CPU with bf16 products for matrices of at least `width` 64, else
/// fp32. Depends only on the machine and the width.
AutomaticPrecision automatic_precision(std::int64_t width, Device device);

/// Precision of each phase with every "auto" resolved. Checkpoints store it for resumed runs.
class PhasePrecision {
 public:
  PhasePrecision(const MixedPrecisionConfig& config, std::int64_t width, Device device);
  const Precision& of(Phase phase) const { return all_[static_cast<std::size_t>(phase)]; }
  /// Returns the choice for "auto" and its reason; empty if no phase uses "auto".
  const std::string& reason() const { return reason_; }
  void save(State& state) const;
  void load(const State& state);

 private:
  Device device_;
  std::array<Precision, kPhases> all_{};
  std::string reason_;
};

}  // namespace hybrid_trainer
