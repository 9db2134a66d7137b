#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/tile_attention.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// Scratch of one worker: seven (T, head_size) arrays if rows are not f32, then two score blocks.
struct BackwardScratch {
  static std::int64_t elements(const AttentionSizes& sizes) {
    return 7 * sizes.length * sizes.head_size + 2 * kQueryBlock * kKeyBlock;
  }
  BackwardScratch(float* scratch, const AttentionSizes& sizes)
      : base(scratch),
        rows_size(sizes.length * sizes.head_size),
        weights(scratch + 7 * rows_size),
        dweights(weights + kQueryBlock * kKeyBlock) {}
  float* rows(int index) const { return base + index * rows_size; }
  float* base;
  std::int64_t rows_size;
  float* weights;
  float* dweights;
};

/// One head's arrays, all in f32.
struct HeadGradients {
  HeadRows query, key, value, doutput;
  HeadSums dquery, dkey, dvalue;
};

/// Scores become weights e^(score − log_sum_exp), and dweights become gradients of the scores
/// before scaling: weight·(dweight − correction)·scale; both 0 beyond the visible keys.
inline void differentiate_row(float* weights, float* dweights, std::int64_t visible,
                              std::int64_t keys, float log_sum_exp, float correction, float scale) {
#pragma omp simd
  for (std::int64_t i = 0; i < visible; ++i) {
    const float weight = exponential(weights[i] - log_sum_exp);
    weights[i] = weight;
    dweights[i] = weight * (dweights[i] - correction) * scale;
  }
  for (std::int64_t i = visible; i < keys; ++i) {
    weights[i] = 0;
    dweights[i] = 0;
  }
}

/// Adds the contributions of one block's queries. Blocks run from the last to the first: the last
/// sees all keys and overwrites.
inline void backward_block(const HeadGradients& head, const BackwardScratch& scratch,
                           const float* corrections, const float* log_sum_exp,
                           std::int64_t first_query, std::int64_t queries,
                           const AttentionSizes& sizes) {
  const std::int64_t seen = first_query + queries;
  const bool accumulate = seen < sizes.length;
  const std::int64_t size = sizes.head_size;
  for (std::int64_t first_key = 0; first_key < seen; first_key += kKeyBlock) {
    const ScoreBlock block{first_query, queries, first_key, std::min(kKeyBlock, seen - first_key)};
    score(scratch.weights, block, head.query, head.key, size, sizes.scale);
    score(scratch.dweights, block, head.doutput, head.value, size, 1.0f);
    for (std::int64_t row = 0; row < queries; ++row) {
      differentiate_row(scratch.weights + row * block.keys, scratch.dweights + row * block.keys,
                        block.visible(row), block.keys, log_sum_exp[first_query + row],
                        corrections[row], sizes.scale);
    }
    gather_from_queries(head.dvalue, scratch.weights, block, head.doutput, size, accumulate);
    gather_from_queries(head.dkey, scratch.dweights, block, head.query, size, accumulate);
    gather_from_keys(head.dquery.row(first_query), head.dquery.stride, scratch.dweights, block,
                     head.key, size, first_key > 0);
  }
}

template <class T>
inline float dot(const T* x, const T* y, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += load(x + i) * load(y + i);
  return sum;
}

/// Where a head's gradient is summed: in place in f32, else in scratch.
inline HeadSums sum_rows(float* rows, std::int64_t stride, std::int64_t, float*) {
  return {rows, stride};
}
inline HeadSums sum_rows(BFloat16*, std::int64_t, std::int64_t head_size, float* scratch) {
  return {scratch, head_size};
}

template <class T>
inline void backward_head(T* dqkv, const T* dy, const T* y, const float* log_sum_exp, const T* qkv,
                          const AttentionSizes& sizes, float* scratch_base) {
  const BackwardScratch scratch(scratch_base, sizes);
  const std::int64_t channels = sizes.channels;
  const std::int64_t stride = 3 * channels;
  const std::int64_t length = sizes.length;
  const std::int64_t size = sizes.head_size;
  const HeadGradients head{
      .query = read_head(qkv, stride, length, size, scratch.rows(0)),
      .key = read_head(qkv + channels, stride, length, size, scratch.rows(1)),
      .value = read_head(qkv + 2 * channels, stride, length, size, scratch.rows(2)),
      .doutput = read_head(dy, channels, length, size, scratch.rows(3)),
      .dquery = sum_rows(dqkv, stride, size, scratch.rows(4)),
      .dkey = sum_rows(dqkv + channels, stride, size, scratch.rows(5)),
      .dvalue = sum_rows(dqkv + 2 * channels, stride, size, scratch.rows(6))};
  const std::int64_t blocks = (length + kQueryBlock - 1) / kQueryBlock;
  for (std::int64_t index = blocks - 1; index >= 0; --index) {
    const std::int64_t first = index * kQueryBlock;
    const std::int64_t queries = std::min(kQueryBlock, length - first);
    float corrections[kQueryBlock];
    for (std::int64_t row = 0; row < queries; ++row) {
      const std::int64_t at = (first + row) * channels;
      corrections[row] = dot(dy + at, y + at, size);
    }
    backward_block(head, scratch, corrections, log_sum_exp, first, queries, sizes);
  }
  write_head(dqkv, stride, length, size, head.dquery);
  write_head(dqkv + channels, stride, length, size, head.dkey);
  write_head(dqkv + 2 * channels, stride, length, size, head.dvalue);
}

}  // namespace

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                        const Stream& stream) {
  const AttentionSizes sizes(qkv, heads);
  if (fits_tiles(sizes, qkv.dtype()))
    return attention_backward_by_tiles(dqkv, dy, y, log_sum_exp, qkv, sizes, stream);
  const std::int64_t scratch_elements = BackwardScratch::elements(sizes);
  const Tensor scratch = empty_workspace(threads() * scratch_elements, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const scratch_base = scratch.data<float>();
  const float* const sums = log_sum_exp.data<float>();
  visit_real(qkv.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const gradient = dqkv.data<T>();
    const T* const dout = dy.data<T>();
    const T* const out = y.data<T>();
    const T* const in = qkv.data<T>();
    parallel_items(sizes.batch * sizes.heads, [=](std::int64_t worker, std::int64_t item) {
      const std::int64_t at = sizes.first_of(item), qkv_at = sizes.first_in_qkv(item);
      backward_head(gradient + qkv_at, dout + at, out + at, sums + item * sizes.length, in + qkv_at,
                    sizes, scratch_base + worker * scratch_elements);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
