#pragma once

#include <string>

#include "hybrid_trainer/core/stream.h"

namespace hybrid_trainer::kernels {

/// A run whose products choose algorithms.
struct ProductRun {
  std::string folder{};  // which keeps those that the run has; "" for none
  bool resumes = false;  // takes those that it had, even if they were never timed
};

/// Loads what products need on the stream's device by two small products, and waits for them, so
/// that its memory is taken before the rest is planned with. Products that follow choose their
/// algorithms for `run`. Nothing on a processor. Throws DeviceError, and OutOfMemory where the
/// device has no memory for it.
void prepare_products(const ProductRun& run, const Stream& stream);

}  // namespace hybrid_trainer::kernels
