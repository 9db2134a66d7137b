#pragma once

// The logits of a mixture's experts, a row of E for each token, as warps read them.

#include "kernels/cuda/real.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

/// One kernel reads both dtypes: logits are few beside what they route.
class TokenLogits {
 public:
  explicit TokenLogits(const Tensor& logits)
      : f32_(logits.dtype() == DType::kF32 ? logits.data<float>() : nullptr),
        bf16_(logits.dtype() == DType::kBF16 ? logits.data<BFloat16>() : nullptr),
        experts_(static_cast<int>(logits.size(1))) {}
  __device__ int experts() const { return experts_; }
  __device__ float at(std::int64_t token, int expert) const {
    const std::int64_t i = token * experts_ + expert;
    return f32_ != nullptr ? f32_[i] : load(bf16_ + i);
  }
  __device__ void set(std::int64_t token, int expert, float value) const {
    const std::int64_t i = token * experts_ + expert;
    if (f32_ != nullptr) return store(f32_ + i, value);
    store(bf16_ + i, value);
  }

 private:
  float* f32_;
  BFloat16* bf16_;
  int experts_;
};

__device__ inline int lane_of_token() { return static_cast<int>(threadIdx.x) % kWarp; }
/// The block's warp, which has a token of its own.
__device__ inline int warp_of_token() { return static_cast<int>(threadIdx.x) / kWarp; }

/// The warp's share of dynamic shared memory, where each has so many elements.
template <class T>
__device__ T* memory_of_warp(int elements) {
  return dynamic_shared<T>() + warp_of_token() * elements;
}

/// softmax(l) of numbers l.
struct TokenSoftmax {
  float most, sum;
  __device__ float of(float logit) const { return expf(logit - most) / sum; }
  __device__ float log_sum() const { return most + logf(sum); }
};

/// Of logit(0), ..., logit(count - 1). All lanes of the warp call it.
template <class Logit>
__device__ TokenSoftmax softmax_by_warp(int count, const Logit& logit) {
  float most = -INFINITY;
  for (int i = lane_of_token(); i < count; i += kWarp) most = Max{}(most, logit(i));
  most = reduce_warp(most, Max{});
  float sum = 0;
  for (int i = lane_of_token(); i < count; i += kWarp) sum += expf(logit(i) - most);
  return {most, reduce_warp(sum, Sum{})};
}
__device__ inline TokenSoftmax softmax_of_token(const TokenLogits& logits, std::int64_t token) {
  return softmax_by_warp(logits.experts(), [&](int e) { return logits.at(token, e); });
}

/// sigmoid.cuh's is within 1e-6, and weights are divided by sums of these.
__device__ inline float exact_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

}  // namespace hybrid_trainer::kernels::cuda
