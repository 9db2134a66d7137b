#pragma once

#include <array>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/trainer/mixed_precision_config.h"

namespace hybrid_trainer {

const char* precision_name(DType dtype);  // "fp32", "bf16"

/// The dtype that each phase computes in, with every "auto" decided. The decision is part of the
/// saved state, so that a resumed run computes as it did before.
class PhasePrecision {
 public:
  /// "auto": bf16 where the processor multiplies it and a product of (rows, width)·(width, 4·width)
  /// is measured to be faster.
  PhasePrecision(const MixedPrecisionConfig& config, std::int64_t rows, std::int64_t width,
                 const Stream& stream);
  DType of(Phase phase) const { return dtypes_[static_cast<std::size_t>(phase)]; }
  void save(State& state) const;
  void load(const State& state);

 private:
  std::array<DType, kPhases> dtypes_{};
};

}  // namespace hybrid_trainer
