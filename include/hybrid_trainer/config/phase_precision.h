#pragma once

#include <array>
#include <string>

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

const char* precision_name(DType dtype);  // "fp32", "bf16"

/// Meaning of "auto".
struct AutomaticPrecision {
  DType dtype = DType::kF32;
  std::string reason;  // one line for the user
};

/// bf16 on CUDA, and where the processor multiplies bf16 and the model is at least 64 wide; else
/// fp32. Depends on the machine and on the width of the model's matrices only, never on a clock.
AutomaticPrecision automatic_precision(std::int64_t width, Device device);

/// The dtype that each phase computes in, with every "auto" decided. The decision is part of the
/// saved state, so that a resumed run computes as it did before.
class PhasePrecision {
 public:
  PhasePrecision(const MixedPrecisionConfig& config, std::int64_t width, Device device);
  DType of(Phase phase) const { return dtypes_[static_cast<std::size_t>(phase)]; }
  /// The choice for "auto" and its reason; empty where no phase asked for it.
  const std::string& reason() const { return reason_; }
  void save(State& state) const;
  void load(const State& state);

 private:
  std::array<DType, kPhases> dtypes_{};
  std::string reason_;
};

}  // namespace hybrid_trainer
