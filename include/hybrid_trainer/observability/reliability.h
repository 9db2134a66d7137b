#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Whether predictions came true as often as their confidence said: those that were accepted in full,
/// by tenths of the confidence with which they were made.
class Reliability {
 public:
  void add(const StepRecord& record);
  /// A plot, share accepted over mean confidence, and the same as text for who cannot see it; "" where
  /// nothing was decided on.
  std::string html() const;

 private:
  struct Bin {
    std::int64_t made = 0, accepted = 0;
    double confidence = 0;  // sum
  };
  std::array<Bin, 10> bins_;
};

}  // namespace hybrid_trainer
