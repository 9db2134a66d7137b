#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/updates/optimizer_update.h"
#include "tests/cuda/orders.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer {

using Tensors = std::vector<Tensor>;

/// Settings that each change the result.
inline constexpr kernels::AdamWSettings kAdamW{.learning_rate = 0.01f,
                                               .beta1 = 0.8f,
                                               .beta2 = 0.95f,
                                               .epsilon = 1e-6f,
                                               .weight_decay = 0.1f,
                                               .gradient_scale = 0.5f,
                                               .step = 3};

inline Stream cuda_stream() { return Stream(MemoryPool::create("device", {}, test_memory())); }

inline Tensor copy_to(const Tensor& tensor, const Stream& stream) {
  if (!tensor) return tensor;
  const Tensor copied = Tensor::empty_like(tensor, MemoryKind::kActivations, stream);
  wait_for_copy(copied, tensor, stream);
  return copied;
}

inline Tensors copies_to(const Tensors& tensors, const Stream& stream) {
  Tensors copied;
  for (const Tensor& tensor : tensors) copied.push_back(copy_to(tensor, stream));
  return copied;
}

/// Runs `kernel` on copies of the tensors on the CPU and, in several thread orders, on CUDA.
/// Expects equal bits in all orders, within `tolerance` · (1 + |value|) of the CPU's.
inline void expect_like_cpu(const Tensors& tensors, double tolerance, const std::string& what,
                            const std::function<void(const Tensors&, const Stream&)>& kernel) {
  const Stream host = kernels::cpu_stream();
  const Tensors wanted = copies_to(tensors, host);
  kernel(wanted, host);
  Tensors first;
  in_several_orders([&] {
    const Stream stream = cuda_stream();
    const Tensors on_device = copies_to(tensors, stream);
    kernel(on_device, stream);
    Tensors results;
    for (const Tensor& tensor : on_device) {
      results.push_back(tensor ? wait_for_host(tensor, stream) : tensor);
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) continue;
      SCOPED_TRACE(concat(what, ", tensor ", i));
      if (!first.empty()) {
        kernels::expect_same_bits(results[i], first[i]);
      } else if (results[i].dtype() == DType::kF32 || results[i].dtype() == DType::kBF16 ||
                 results[i].dtype() == DType::kF64) {
        kernels::expect_close(results[i], kernels::values_of(wanted[i]), tolerance);
      } else {
        kernels::expect_same_bits(results[i], wanted[i]);
      }
    }
    if (first.empty()) first = results;
  });
}

/// Runs `kernel` on copies of the tensors on CUDA; returns the first value of the f32 tensor `at`.
inline float first_on_cuda(const Tensors& tensors, std::size_t at,
                           const std::function<void(const Tensors&, const Stream&)>& kernel) {
  const Stream stream = cuda_stream();
  const Tensors on_device = copies_to(tensors, stream);
  kernel(on_device, stream);
  return wait_for_host(on_device[at], stream).data<float>()[0];
}

/// Runs `kernel` on copies of the tensors on CUDA and expects all real tensors to be finite.
inline void expect_finite_on_cuda(
    const Tensors& tensors, const std::function<void(const Tensors&, const Stream&)>& kernel) {
  const Stream stream = cuda_stream();
  const Tensors on_device = copies_to(tensors, stream);
  kernel(on_device, stream);
  for (std::size_t i = 0; i < on_device.size(); ++i) {
    if (!on_device[i] || on_device[i].dtype() == DType::kI32) continue;
    for (const double value : kernels::values_of(wait_for_host(on_device[i], stream)))
      ASSERT_TRUE(std::isfinite(value)) << "tensor " << i;
  }
}

}  // namespace hybrid_trainer
