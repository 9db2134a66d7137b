#pragma once

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {

/// Times kernels one after another by the device's clock. Launches follow each other without a gap
/// and cycle through enough sets of tensors that the L2 cache never has the next set.
class DeviceTimer final : public KernelTimer {
 public:
  /// Measures the device's rates first. Throws DeviceError.
  DeviceTimer(const std::string& scale, std::string only, const Stream& stream);
  const Rates& rates() const { return rates_; }

 private:
  Timing timed(const Kernel& kernel, const std::function<Work()>& make) const override;
  void measure_rates();
  double measure_memcpy_rate() const;
  double seconds_of_launch(const std::vector<Work>& sets, std::size_t launches) const;

  bool small_;
  std::size_t cache_bytes_;
  Rates rates_;
};

}  // namespace hybrid_trainer::benchmarks
