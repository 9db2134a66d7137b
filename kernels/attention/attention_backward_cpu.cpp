#include "hybrid_trainer/kernels/attention.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/tile_attention_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <class T>
struct SinkTensors {
  const T *dy, *y;
  const float *log_sum_exp, *sinks;
  std::int64_t batch, length, heads, head_size;
};

/// Returns Σ e^(sink − log_sum_exp)·⟨dy, y⟩ of a head.
template <class T>
inline double weighted_products(const SinkTensors<T>& tensors, std::int64_t head) {
  const auto [dy, y, log_sum_exp, sinks, batch, length, heads, size] = tensors;
  double sum = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t at = ((b * length + t) * heads + head) * size;
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (std::int64_t i = 0; i < size; ++i) product += load(dy + at + i) * load(y + at + i);
      sum += std::exp(sinks[head] - log_sum_exp[(b * heads + head) * length + t]) * product;
    }
  }
  return sum;
}

/// Scratch memory of a worker: seven arrays of a head's rows, used if the tensors are not f32, then
/// two score blocks.
struct BackwardScratch {
  static std::int64_t rows_of(const AttentionSizes& sizes) {
    return std::max(sizes.length, sizes.key_length) * sizes.head_size;
  }
  static std::int64_t elements(const AttentionSizes& sizes) {
    return 7 * rows_of(sizes) + 2 * kQueryBlock * kKeyBlock;
  }
  BackwardScratch(float* scratch, const AttentionSizes& sizes)
      : base(scratch),
        rows_size(rows_of(sizes)),
        weights(scratch + 7 * rows_size),
        dweights(weights + kQueryBlock * kKeyBlock) {}
  float* rows(int index) const { return base + index * rows_size; }
  float* base;
  std::int64_t rows_size;
  float* weights;
  float* dweights;
};

struct HeadGradients {
  HeadRows query, key, value, doutput;
  HeadSums dquery, dkey, dvalue;
};

/// Replaces scores by weights e^(score − log_sum_exp), and dweights by the gradients of the scores
/// before scaling: weight·(dweight − correction)·scale; both 0 beyond the visible keys.
inline void differentiate_f32_row(float* weights, float* dweights, std::int64_t visible,
                                  std::int64_t keys, float log_sum_exp, float correction,
                                  float scale) {
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

/// differentiate_f32_row for scores capped at c: also multiplies by the derivative of c·tanh(s/c).
inline void differentiate_capped_f32_row(float* weights, float* dweights, std::int64_t visible,
                                         std::int64_t keys, float log_sum_exp, float correction,
                                         float scale, float cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < visible; ++i) {
    const float tangent = hyperbolic_tangent(weights[i] / cap);
    weights[i] = cap * tangent;
    dweights[i] = (dweights[i] - correction) * (1.0f - tangent * tangent);
  }
  differentiate_f32_row(weights, dweights, visible, keys, log_sum_exp, 0, scale);
}

/// Sets scratch.weights to a block's weights, and scratch.dweights to scale · its score gradients.
inline void differentiate_block(const HeadGradients& head, const BackwardScratch& scratch,
                                const float* corrections, const float* log_sum_exp,
                                std::int64_t item, const ScoreBlock& block, float scale,
                                const AttentionSizes& sizes) {
  const std::int64_t size = sizes.head_size;
  score(scratch.weights, block, head.query, head.key, size, sizes.scale);
  add_bias(scratch.weights, block, item, sizes);
  score(scratch.dweights, block, head.doutput, head.value, size, 1.0f);
  for (std::int64_t row = 0; row < block.queries; ++row) {
    const std::int64_t hidden = block.begin(row, item, sizes), at = row * block.keys;
    float* const weights = scratch.weights + at;
    float* const dweights = scratch.dweights + at;
    std::fill_n(weights, hidden, 0.0f);
    std::fill_n(dweights, hidden, 0.0f);
    const std::int64_t visible = block.end(row, item, sizes) - hidden, keys = block.keys - hidden;
    const float log_sum = log_sum_exp[block.first_query + row];
    if (sizes.cap > 0) {
      differentiate_capped_f32_row(weights + hidden, dweights + hidden, visible, keys, log_sum,
                                   corrections[row], scale, sizes.cap);
    } else {
      differentiate_f32_row(weights + hidden, dweights + hidden, visible, keys, log_sum,
                            corrections[row], scale);
    }
    block.for_hidden(row, item, sizes, [&](std::int64_t from, std::int64_t to) {
      std::fill(weights + from, weights + to, 0.0f);
      std::fill(dweights + from, dweights + to, 0.0f);
    });
  }
}

/// Adds the contributions of a query block, from the last to the first. If nothing masks keys, the
/// first of the heads that share them overwrites their gradients.
inline void backward_block(const HeadGradients& head, const BackwardScratch& scratch,
                           const float* corrections, const float* log_sum_exp, std::int64_t item,
                           std::int64_t first_query, std::int64_t queries,
                           const AttentionSizes& sizes) {
  const bool accumulate =
      item % sizes.group != 0 || first_query + queries < sizes.length || sizes.masks();
  const std::int64_t size = sizes.head_size;
  const auto visit = [&](const ScoreBlock& block, bool is_first) {
    differentiate_block(head, scratch, corrections, log_sum_exp, item, block, sizes.scale, sizes);
    gather_from_queries(head.dvalue, scratch.weights, block, head.doutput, size, accumulate);
    gather_from_queries(head.dkey, scratch.dweights, block, head.query, size, accumulate);
    gather_from_keys(head.dquery.row(first_query), head.dquery.stride, scratch.dweights, block,
                     head.key, size, !is_first);
  };
  for_key_blocks(item, first_query, queries, sizes, visit);
}

template <class T>
inline float dot(const T* x, const T* y, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += load(x + i) * load(y + i);
  return sum;
}

/// Returns the rows in which a head's gradient is summed: `rows` if they are f32, else scratch.
inline HeadSums sum_rows(float* rows, std::int64_t stride, std::int64_t, float*) {
  return {rows, stride};
}
inline HeadSums sum_rows(BFloat16*, std::int64_t, std::int64_t head_size, float* scratch) {
  return {scratch, head_size};
}

inline void fill_rows_with_zeros(const HeadSums& rows, std::int64_t count, std::int64_t size) {
  for (std::int64_t row = 0; row < count; ++row) std::fill_n(rows.row(row), size, 0.0f);
}

template <class T>
struct BackwardTensors {
  AttentionRows<T> gradients;
  const T *dy, *y;
  const float* log_sum_exp;
  AttentionRows<const T> from;
};

/// Differentiates one query head; only the first head of a group reads keys and values.
template <class T>
inline void backward_head(const BackwardTensors<T>& tensors, HeadGradients& head, std::int64_t item,
                          const BackwardScratch& scratch, const AttentionSizes& sizes) {
  const std::int64_t channels = sizes.channels, stride = sizes.stride, length = sizes.length,
                     size = sizes.head_size, query_at = sizes.queries_at(item);
  const T *const dy = tensors.dy + sizes.first_of(item), *const y =
                                                             tensors.y + sizes.first_of(item);
  T* const dqueries = tensors.gradients.queries + query_at;
  head.query = read_head(tensors.from.queries + query_at, stride, length, size, scratch.rows(0));
  head.doutput = read_head(dy, channels, length, size, scratch.rows(3));
  head.dquery = sum_rows(dqueries, stride, size, scratch.rows(4));
  if (sizes.keys_of(item) == 0) fill_rows_with_zeros(head.dquery, length, size);
  const std::int64_t blocks = (length + kQueryBlock - 1) / kQueryBlock;
  for (std::int64_t index = blocks - 1; index >= 0; --index) {
    const std::int64_t first = index * kQueryBlock;
    const std::int64_t queries = std::min(kQueryBlock, length - first);
    float corrections[kQueryBlock];
    for (std::int64_t row = 0; row < queries; ++row) {
      const std::int64_t at = (first + row) * channels;
      corrections[row] = dot(dy + at, y + at, size);
    }
    backward_block(head, scratch, corrections, tensors.log_sum_exp + item * length, item, first,
                   queries, sizes);
  }
  write_head(dqueries, stride, length, size, head.dquery);
}

template <class T>
inline void backward_group(const BackwardTensors<T>& tensors, std::int64_t first,
                           const AttentionSizes& sizes, float* scratch_base) {
  const BackwardScratch scratch(scratch_base, sizes);
  const std::int64_t stride = sizes.key_stride, length = sizes.key_length,
                     seen = sizes.keys_of(first), size = sizes.head_size,
                     key_at = sizes.keys_at(first), value_at = sizes.values_at(first);
  const T* const keys = tensors.from.keys;
  T* const dkeys = tensors.gradients.keys;
  HeadGradients head{.query = {},
                     .key = read_head(keys + key_at, stride, seen, size, scratch.rows(1)),
                     .value = read_head(keys + value_at, stride, seen, size, scratch.rows(2)),
                     .doutput = {},
                     .dquery = {},
                     .dkey = sum_rows(dkeys + key_at, stride, size, scratch.rows(5)),
                     .dvalue = sum_rows(dkeys + value_at, stride, size, scratch.rows(6))};
  if (sizes.masks()) {
    fill_rows_with_zeros(head.dkey, length, size);
    fill_rows_with_zeros(head.dvalue, length, size);
  }
  for (std::int64_t item = first; item < first + sizes.group; ++item)
    backward_head(tensors, head, item, scratch, sizes);
  write_head(dkeys + key_at, stride, length, size, head.dkey);
  write_head(dkeys + value_at, stride, length, size, head.dvalue);
}

/// Sets sums to the gradients of a head's scores, summed by distance from query to key.
template <class T>
inline void sum_by_distance(float* sums, const BackwardTensors<T>& tensors, std::int64_t item,
                            const AttentionSizes& sizes, float* scratch_base) {
  const BackwardScratch scratch(scratch_base, sizes);
  const std::int64_t length = sizes.length, size = sizes.head_size, stride = sizes.stride;
  const T *const rows = tensors.from.queries, *const dy = tensors.dy + sizes.first_of(item),
                 *const y = tensors.y + sizes.first_of(item);
  const auto read = [&](const T* from, std::int64_t step, int index) {
    return read_head(from, step, length, size, scratch.rows(index));
  };
  const HeadGradients head{.query = read(rows + sizes.queries_at(item), stride, 0),
                           .key = read(rows + sizes.keys_at(item), stride, 1),
                           .value = read(rows + sizes.values_at(item), stride, 2),
                           .doutput = read(dy, sizes.channels, 3),
                           .dquery = {},
                           .dkey = {},
                           .dvalue = {}};
  std::fill_n(sums, sizes.distances, 0.0f);
  for (std::int64_t first = 0; first < length; first += kQueryBlock) {
    const std::int64_t queries = std::min(kQueryBlock, length - first);
    float corrections[kQueryBlock];
    for (std::int64_t row = 0; row < queries; ++row) {
      const std::int64_t at = (first + row) * sizes.channels;
      corrections[row] = dot(dy + at, y + at, size);
    }
    const auto visit = [&](const ScoreBlock& block, bool) {
      differentiate_block(head, scratch, corrections, tensors.log_sum_exp + item * length, item,
                          block, 1.0f, sizes);
      for (std::int64_t row = 0; row < queries; ++row) {
        float* const to = sums + sizes.distances / 2 + block.first_key - first - row;
        const float* const dscores = scratch.dweights + row * block.keys;
#pragma omp simd
        for (std::int64_t key = 0; key < block.keys; ++key) to[key] += dscores[key];
      }
    };
    for_key_blocks(item, first, queries, sizes, visit);
  }
}

}  // namespace

void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream&) {
  const std::int64_t heads = sinks.size(0);
  visit_real(y.dtype(), [&]<class T>(T) {
    const SinkTensors<T> tensors{.dy = dy.data<T>(),
                                 .y = y.data<T>(),
                                 .log_sum_exp = log_sum_exp.data<float>(),
                                 .sinks = sinks.data<float>(),
                                 .batch = y.size(0),
                                 .length = y.size(1),
                                 .heads = heads,
                                 .head_size = y.size(2) / heads};
    float* const to = dsinks.data<float>();
    const bool adds = mode == GradientMode::kAccumulate;
    parallel_items(heads, [=](std::int64_t, std::int64_t head) {
      const double sum = weighted_products(tensors, head);
      to[head] = static_cast<float>((adds ? to[head] : 0.0) - sum);
    });
  });
}

void backward_attention(const AttentionOperands& gradients, const AttentionResults& results,
                        const AttentionOperands& from, const AttentionSizes& sizes,
                        const Stream& stream) {
  if (fits_tiles(sizes, results.y.dtype()))
    return attention_backward_by_tiles(gradients, results, from, sizes, stream);
  const std::int64_t scratch_elements = BackwardScratch::elements(sizes);
  const Tensor scratch = empty_workspace(threads() * scratch_elements, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const scratch_base = scratch.data<float>();
  visit_real(results.y.dtype(), [&]<class T>(T) {
    const BackwardTensors<T> tensors{gradients.rows<T>(), results.dy.data<T>(), results.y.data<T>(),
                                     results.log_sum_exp.data<float>(), from.rows<const T>()};
    parallel_items(sizes.items() / sizes.group, [=](std::int64_t worker, std::int64_t item) {
      backward_group(tensors, item * sizes.group, sizes, scratch_base + worker * scratch_elements);
    });
  });
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream) {
  backward_attention({dqkv, dqkv}, {dy, y, log_sum_exp}, {qkv, qkv},
                     AttentionSizes(qkv, positions, spec), stream);
}

/// Sums each head of each sequence separately, then adds the sequences in their order.
void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const AttentionSizes sizes(qkv, positions, spec);
  const std::int64_t scratch_elements = BackwardScratch::elements(sizes);
  const std::int64_t elements = sizes.items() * sizes.distances;
  const Tensor scratch =
      empty_workspace(elements + threads() * scratch_elements, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const sums = scratch.data<float>();
  visit_real(qkv.dtype(), [&]<class T>(T) {
    const BackwardTensors<T> tensors{{},
                                     dy.data<T>(),
                                     y.data<T>(),
                                     log_sum_exp.data<float>(),
                                     AttentionOperands{qkv, qkv}.rows<const T>()};
    parallel_items(sizes.items(), [=](std::int64_t worker, std::int64_t item) {
      sum_by_distance(sums + item * sizes.distances, tensors, item, sizes,
                      sums + elements + worker * scratch_elements);
    });
  });
  float* const to = dbias.data<float>();
  const bool adds = mode == GradientMode::kAccumulate;
  parallel_for(sizes.heads * sizes.distances, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float sum = adds ? to[i] : 0.0f;
      for (std::int64_t b = 0; b < sizes.batch; ++b)
        sum += sums[b * sizes.heads * sizes.distances + i];
      to[i] = sum;
    }
  });
}

}  // namespace hybrid_trainer::kernels::cpu
