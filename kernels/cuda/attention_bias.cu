#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr unsigned int kBiasThreads = 256;

template <class T>
struct BiasTensors {
  const T *dy, *qkv;
  QueryTerms terms;
  OperandSizes sizes;
};

/// The gradient of a query's score of a key, both lanes' sums over the head.
template <class T>
__device__ float score_gradient(const BiasTensors<T>& tensors, std::int64_t item, int query,
                                int key, unsigned int lane) {
  const OperandSizes& sizes = tensors.sizes;
  const int head = sizes.head_of(item);
  const T* const q = tensors.qkv + sizes.queries_at(item) + query * sizes.stride;
  const T* const k = tensors.qkv + sizes.keys_at(item) + key * sizes.stride;
  const T* const dy = tensors.dy + sizes.y_at(item) + query * sizes.channels;
  float score = 0, dweight = 0;
  for (std::int64_t i = lane; i < sizes.head_size; i += kWarp) {
    score += load(q + i) * load(k + i);
    dweight += load(dy + i) * load(k + sizes.key_channels + i);
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    score += __shfl_xor_sync(kAllLanes, score, distance);
    dweight += __shfl_xor_sync(kAllLanes, dweight, distance);
  }
  const bool is_hidden =
      sizes.pattern.is_on() &&
      !sizes.pattern.sees(head, query / sizes.pattern.block, key / sizes.pattern.block);
  const QueryTerms terms = tensors.terms.of(item);
  if (is_hidden || !sizes.sees(item, query, terms.first_keys[query], key)) return 0;
  float scaled = score * sizes.scale + sizes.bias_of(item)[key - query], slope = 1;
  if (sizes.cap > 0) {
    const float tangent = tanhf(scaled / sizes.cap);
    scaled = sizes.cap * tangent;
    slope = 1.0f - tangent * tangent;
  }
  const float weight = exp2f(scaled * kLog2E - terms.exponents[query]);
  return weight * (dweight - terms.corrections[query]) * slope;
}

/// A warp for each head and distance, which adds up the queries of all sequences.
template <class T>
__global__ void bias_kernel(float* dbias, BiasTensors<T> tensors, bool adds) {
  const OperandSizes& sizes = tensors.sizes;
  const unsigned int warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const unsigned int lane = threadIdx.x % kWarp;
  if (warp >= sizes.heads * sizes.distances) return;
  const int head = static_cast<int>(warp / sizes.distances);
  const int length = static_cast<int>(sizes.length);
  const int distance =
      static_cast<int>(warp % sizes.distances) - static_cast<int>(sizes.distances / 2);
  const int first = distance < 0 ? -distance : 0, end = distance > 0 ? length - distance : length;
  float sum = 0;
  for (std::int64_t item = head; item < sizes.items; item += sizes.heads) {
    for (int query = first; query < end; ++query)
      sum += score_gradient(tensors, item, query, query + distance, lane);
  }
  if (lane == 0) dbias[warp] = (adds ? dbias[warp] : 0.0f) + sum;
}

}  // namespace

void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const OperandSizes sizes(AttentionSizes(qkv, positions, spec), spec);
  const QueryTermsSpace space(sizes, true, stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  const std::int64_t warps = sizes.heads * sizes.distances, of_block = kBiasThreads / kWarp;
  const Grid grid{.x = static_cast<unsigned int>((warps + of_block - 1) / of_block),
                  .threads = kBiasThreads};
  visit_real(qkv.dtype(), [&](auto real) {
    using T = decltype(real);
    const BiasTensors<T> tensors{dy.data<T>(), qkv.data<T>(), terms, sizes};
    launch(stream, "attention_bias_backward", bias_kernel<T>, grid, dbias.data<float>(), tensors,
           mode == GradientMode::kAccumulate);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
