#include "hybrid_trainer/kernels/cross_attention.h"

#include <algorithm>

#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr std::int64_t kPadding = 128;  // a multiple of every block of queries

/// `lanes` (a power of two up to 32) neighbouring threads for each query of each head, heads side
/// by side as they are in memory; blockIdx.y counts sequences.
template <class T, int kPack>
__global__ void query_terms_kernel(QueryTerms terms, const T* dy, const T* y,
                                   const float* log_sum_exp, AttentionSizes sizes,
                                   unsigned int lanes) {
  const auto heads = static_cast<unsigned int>(sizes.heads);
  const auto head_size = static_cast<unsigned int>(sizes.head_size);
  const unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned int head = thread / lanes % heads, query = thread / lanes / heads;
  const bool exists = query < sizes.length;
  for (std::int64_t item = blockIdx.y * sizes.heads + head; item - head < sizes.items;
       item += gridDim.y * sizes.heads) {
    float sum = 0;
    if (exists) {
      const std::int64_t row = sizes.y_at(item) + query * sizes.channels;
      for (unsigned int i = thread % lanes * kPack; i < head_size; i += lanes * kPack) {
        float a[kPack], b[kPack];
        load_pack(a, dy + row + i);
        load_pack(b, y + row + i);
        for (int j = 0; j < kPack; ++j) sum += a[j] * b[j];
      }
    }
    for (unsigned int distance = lanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(distance));
    }
    if (thread % lanes != 0 || query >= terms.padded) continue;
    const QueryTerms mine = terms.of(item);
    const float exponent = exists ? log_sum_exp[item * sizes.length + query] * kLog2E : INFINITY;
    mine.exponents[query] = exponent == -INFINITY ? INFINITY : exponent;  // of no key
    mine.corrections[query] = sum;
    if (mine.first_keys == nullptr) continue;
    mine.first_keys[query] = static_cast<std::int32_t>(sizes.first_key(item, query));
  }
}

template <class... Tensors>
bool fits_tensor_cores(const AttentionSizes& sizes, const Tensor& qkv, const Tensors&... tensors) {
  constexpr int kMostTile = 64;  // rows and columns that are skipped as one
  const std::int64_t head = sizes.head_size;
  if (sizes.pattern.is_on() && sizes.pattern.block % kMostTile != 0) return false;
  return !sizes.two_way && qkv.dtype() == DType::kBF16 &&
         (head == 64 || head == 128 || head == 256) &&
         packs_fit<BFloat16>(sizes.head_size, qkv.raw(), tensors.raw()...);
}

}  // namespace

void check_head_size(const char* kernel, std::int64_t head_size) {
  constexpr std::int64_t kMost = 256;
  if (head_size <= kMost) return;
  throw Error(ExitCode::kConfig,
              concat(kernel, ": head_size is ", head_size, ", want up to ", kMost,
                     " on CUDA; more heads make it smaller, --device cpu takes any"));
}

QueryTermsSpace::QueryTermsSpace(const AttentionSizes& sizes, bool has_bias, const Stream& stream) {
  const std::int64_t padded = sizes.blocks(kPadding) * kPadding, size = sizes.items * padded;
  const std::int64_t arrays = sizes.plain() && !has_bias ? 2 : 3;
  workspace_ = empty_workspace(arrays * size, DType::kF32, stream);
  auto* const begin = workspace_.data<float>();
  terms_ = {begin, begin + size, nullptr, padded};
  if (arrays == 3) terms_.first_keys = reinterpret_cast<std::int32_t*>(begin + 2 * size);
}

QueryTerms QueryTermsSpace::compute(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                                    const AttentionSizes& sizes, const Stream& stream) const {
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    const auto start = [&](auto* kernel, std::int64_t pack) {
      std::int64_t lanes = 1;
      while (lanes < kWarp && lanes * pack < sizes.head_size) lanes *= 2;
      Grid grid = grid_for(terms_.padded * sizes.heads * lanes);
      grid.y = static_cast<unsigned int>(std::min<std::int64_t>(sizes.items / sizes.heads, 65535));
      launch(stream, "attention_query_terms", kernel, grid, terms_, dy.data<T>(), y.data<T>(),
             log_sum_exp.data<float>(), sizes, static_cast<unsigned int>(lanes));
    };
    if (packs_fit<T>(sizes.head_size, dy.raw(), y.raw())) {
      start(query_terms_kernel<T, kPackSize<T>>, kPackSize<T>);
    } else {
      start(query_terms_kernel<T, 1>, 1);
    }
  });
  return terms_;
}

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const AttentionSizes sizes(qkv, positions, spec);
  check_head_size("attention_forward", sizes.head_size);
  if (!spec.bias && fits_tensor_cores(sizes, qkv, y)) {
    tensor_core_attention_forward(y, log_sum_exp, qkv, sizes, stream);
  } else {
    general_attention_forward(y, log_sum_exp, {qkv, qkv}, OperandSizes(sizes, spec), stream);
  }
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream) {
  const AttentionSizes sizes(qkv, positions, spec);
  check_head_size("attention_backward", sizes.head_size);
  const QueryTermsSpace space(sizes, spec.bias.defined(), stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  if (spec.bias || !fits_tensor_cores(sizes, qkv, dqkv, dy)) {
    general_attention_backward({dqkv, dqkv}, dy, terms, {qkv, qkv}, OperandSizes(sizes, spec),
                               stream);
  } else if (const std::int64_t blocks = joint_attention_blocks(sizes, stream); blocks > 0) {
    joint_attention_backward(dqkv, dy, terms, qkv, blocks, sizes, stream);
  } else {
    tensor_core_attention_backward(dqkv, dy, terms, qkv, sizes, stream);
  }
}

void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream) {
  const OperandSizes sizes(q, kv, lengths, spec);
  check_head_size("cross_attention_forward", sizes.head_size);
  general_attention_forward(y, log_sum_exp, {q, kv}, sizes, stream);
}

void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream) {
  const OperandSizes sizes(q, kv, lengths, spec);
  check_head_size("cross_attention_backward", sizes.head_size);
  const QueryTermsSpace space(sizes, false, stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  general_attention_backward({dq, dkv}, dy, terms, {q, kv}, sizes, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
