#pragma once

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

const char* precision_name(const Precision& precision);
/// Returns the precision that `name` means on the device. The operands of fp16 and fp8 products are
/// rounded by separate kernels (nn/product_rounding.h), so activations have a dtype that can
/// represent the rounded operands: f32, or bf16 for fp8 on CUDA.
Precision precision_named(const std::string& name, Device device);

/// The precision that "auto" stands for.
struct AutomaticPrecision {
  DType dtype = DType::kF32;
  std::string reason;  // for the user, on one line
};

/// Returns bf16 on CUDA, and on a CPU with bf16 products if the model is at least 64 wide, else
/// fp32. Depends only on the machine and the width of the model's matrices, not on measured times.
AutomaticPrecision automatic_precision(std::int64_t width, Device device);

/// Precision of each phase, with every "auto" resolved. Saved, so that resumed runs do not change.
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
