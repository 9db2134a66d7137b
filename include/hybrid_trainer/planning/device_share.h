#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Bytes that each parameter takes, by what they are for.
struct BytesPerParameter {
  double weights = 0;  // of the dtype that computes
  double gradients = 0;
  double optimizer = 0;  // moments and f32 masters
  double sum() const { return weights + gradients + optimizer; }

  /// "2+2+12": weights, gradients, optimizer. Throws UsageError.
  static BytesPerParameter parse(const std::string& text);
};

/// How a model is cut over devices.
struct DeviceSplit {
  std::int64_t devices = 1;
  std::int64_t tensor = 1;    // devices that share each layer
  std::int64_t pipeline = 1;  // groups of devices that share the layers
  int zero = 0;  // of data-parallel ranks: 1 shares optimizer, 2 gradients too, 3 weights too

  std::int64_t data_parallel() const { return devices / (tensor * pipeline); }
  std::string text() const;  // "8 devices, ZeRO 1"
};

/// Bytes of the model's state that one device holds: a calculation, no measurement; what ranks on
/// processors take is simulated (simulate_ranks). Activations come on top. Source: Rajbhandari et al. 2020, "ZeRO: memory
/// optimizations toward training trillion parameter models", section 5.
double model_state_bytes(double parameters, const BytesPerParameter& bytes,
                         const DeviceSplit& split);

/// A way to make it fit, and what a device then holds.
struct SplitAdvice {
  std::string what;
  double bytes = 0;
};

/// Changes that bring the state and `activation_bytes` of one device below the budget, one after
/// another; empty where it fits already.
std::vector<SplitAdvice> advice_to_fit(double parameters, const BytesPerParameter& bytes,
                                       const DeviceSplit& split, double activation_bytes,
                                       double budget_bytes);

}  // namespace hybrid_trainer
