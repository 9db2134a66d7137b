#pragma once

#include <functional>

#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels::cuda {

/// A product of the shapes of another one on random numbers, in device memory of its own, for
/// timing algorithms. The other one's operands are left alone.
class ProductTrial {
 public:
  /// Throws OutOfMemory.
  ProductTrial(const Product& like, const Stream& stream);

  /// Seconds on the device of what `run` enqueues for the trial's product, with nothing of it in
  /// the L2 cache; infinity if `run` throws DeviceError. Waits for the device.
  double seconds_of(const std::function<void(const Product&, const Stream&)>& run) const;

 private:
  Tensor random_like(const Tensor& tensor) const;

  Stream stream_;  // the same queue, with a pool of the trial's own
  Tensor noise_;   // f32
  Tensor flush_;   // larger than the cache
  Product product_;
};

}  // namespace hybrid_trainer::kernels::cuda
