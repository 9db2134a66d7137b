#pragma once

// Elementwise kernels: one thread per pack of elements.

#include "kernels/cuda/real.cuh"

namespace hybrid_trainer::kernels::cuda {

template <int N, class Body>
__global__ void for_packs_kernel(Body body, std::int64_t elements) {
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i + N <= elements) {
    body.template at<N>(i);
    return;
  }
  for (; i < elements; ++i) body.template at<1>(i);
}

/// Enqueues body.at<N>(i) for each pack [i, i + N) of the elements, and at<1>(i) for each element
/// left over; at<1> for all if one of `begins`, the arrays that the body uses, is not aligned.
template <int N, class Body, class... Pointers>
void for_packs(const Stream& stream, const char* name, std::int64_t elements, const Body& body,
               Pointers... begins) {
  if (packs_aligned(begins...)) {
    launch(stream, name, for_packs_kernel<N, Body>, grid_for((elements + N - 1) / N), body,
           elements);
  } else {
    launch(stream, name, for_packs_kernel<1, Body>, grid_for(elements), body, elements);
  }
}

}  // namespace hybrid_trainer::kernels::cuda
