#pragma once

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {

/// A device as specified by its maker's data sheet.
struct Card {
  std::string name;
  Rates rates;
};

/// Throws UsageError.
Card card_of(const std::string& name);

/// Share of the data sheet's rate that a kernel is expected to reach: an unmeasured assumption.
double expected_share(const Kernel& kernel);

/// Estimates each kernel's time from its bytes and operations, on a stream of simulated memory.
class PaperTimer final : public KernelTimer {
 public:
  PaperTimer(Card card, std::string only, const Stream& stream);
  const Card& card() const { return card_; }

 private:
  Timing timed(const Kernel& kernel, const std::function<Work()>& make) const override;
  Card card_;
};

}  // namespace hybrid_trainer::benchmarks
