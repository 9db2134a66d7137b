#pragma once

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// "fp32", "bf16", "fp16" or "fp8".
const char* precision_name(const Precision& precision);
/// What such a name means on the device. Products of fp16 and fp8 are rounded there by kernels of their
/// own (nn/product_rounding.h), so activations lie in a dtype that holds their operands: f32, and for
/// fp8 on CUDA bf16.
Precision precision_named(const std::string& name, Device device);

/// Meaning of "auto".
struct AutomaticPrecision {
  DType dtype = DType::kF32;
  std::string reason;  // one line for the user
};

/// bf16 on CUDA, and where the processor multiplies bf16 and the model is at least 64 wide; else
/// fp32. Depends on the machine and on the width of the model's matrices only, never on a clock.
AutomaticPrecision automatic_precision(std::int64_t width, Device device);

/// The precision of each phase, with every "auto" decided. The decision is part of the saved state,
/// so that a resumed run computes as it did before.
class PhasePrecision {
 public:
  PhasePrecision(const MixedPrecisionConfig& config, std::int64_t width, Device device);
  const Precision& of(Phase phase) const { return all_[static_cast<std::size_t>(phase)]; }
  /// The choice for "auto" and its reason; empty where no phase asked for it.
  const std::string& reason() const { return reason_; }
  void save(State& state) const;
  void load(const State& state);

 private:
  Device device_;
  std::array<Precision, kPhases> all_{};
  std::string reason_;
};

}  // namespace hybrid_trainer
