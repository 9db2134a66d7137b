#include "hybrid_trainer/kernels/attention.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/tile_attention_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Rotates a head. Pair j is channels kStep·j and kStep·j + gap.
template <std::int64_t kStep, class T>
void rotate_head(T* head, std::int64_t gap, const float* cosines, const float* sines, float sign,
                 std::int64_t half) {
  T* const second = head + gap;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float u = load(head + kStep * i), v = load(second + kStep * i), s = sign * sines[i];
    store(head + kStep * i, u * cosines[i] - v * s);
    store(second + kStep * i, v * cosines[i] + u * s);
  }
}

}  // namespace

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream&) {
  const std::int64_t length = x.size(1), stride = x.size(2), half = table.size(1) / 2;
  const std::int64_t count = heads.count, size = heads.size_or(2 * half);
  const bool are_adjacent = heads.pairs_are_adjacent;
  const float* const angles = table.data<float>() + (positions ? 0 : first_position) * 2 * half;
  const std::int32_t* const places = optional_data<std::int32_t>(positions);
  const float sign = rotation == Rotation::kForward ? 1.0f : -1.0f;
  visit_real(x.dtype(), [&]<class T>(T) {
    auto* const rows = x.data<T>();
    const std::int64_t row_elements = count * 2 * half;
    for_each_row(x.size(0) * length, row_elements, [=](std::int64_t row) {
      const float* const cosines = angles + (places ? places[row] : row % length) * 2 * half;
      const float* const sines = cosines + half;
      for (std::int64_t head = 0; head < count; ++head) {
        auto* const first = rows + row * stride + head * size;
        if (are_adjacent) {
          rotate_head<2>(first, 1, cosines, sines, sign, half);
        } else {
          rotate_head<1>(first, half, cosines, sines, sign, half);
        }
      }
    });
  });
}

namespace {

struct ForwardScratch {
  static std::int64_t elements(const AttentionSizes& sizes) {
    return (sizes.length + 2 * sizes.key_length) * sizes.head_size +
           kQueryBlock * (kKeyBlock + sizes.head_size);
  }
  ForwardScratch(float* base, const AttentionSizes& sizes)
      : query(base),
        key(query + sizes.length * sizes.head_size),
        value(key + sizes.key_length * sizes.head_size),
        scores(value + sizes.key_length * sizes.head_size),
        output(scores + kQueryBlock * kKeyBlock) {}
  float* query;
  float* key;
  float* value;
  float* scores;
  float* output;  // (kQueryBlock, head_size)
};

/// Running softmax of a query: the highest score and the sum of e^(score − highest) so far.
struct RunningSoftmax {
  float highest;
  float total;
};

/// Replaces a query's scores by weights, 0 for keys from `visible` on. Rescales previous sums.
inline void weigh_row(float* scores, std::int64_t visible, std::int64_t keys, float* output,
                      std::int64_t head_size, RunningSoftmax& softmax) {
  float highest = softmax.highest;
#pragma omp simd reduction(max : highest)
  for (std::int64_t i = 0; i < visible; ++i) highest = scores[i] > highest ? scores[i] : highest;
  if (highest == -std::numeric_limits<float>::infinity()) visible = 0;  // the pattern masks all
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < visible; ++i) {
    const float weight = exponential(scores[i] - highest);
    scores[i] = weight;
    total += weight;
  }
  for (std::int64_t i = visible; i < keys; ++i) scores[i] = 0;
  if (softmax.total > 0) {
    const float factor = exponential(softmax.highest - highest);
    total += softmax.total * factor;
#pragma omp simd
    for (std::int64_t i = 0; i < head_size; ++i) output[i] *= factor;
  }
  softmax = {highest, total};
}

/// Computes attention of a query block in scratch.output, still to be divided by the totals.
inline void attend(const ForwardScratch& scratch, RunningSoftmax* softmax, std::int64_t item,
                   std::int64_t first_query, std::int64_t queries, const HeadRows& query,
                   const HeadRows& key, const HeadRows& value, const AttentionSizes& sizes) {
  std::fill_n(softmax, queries, RunningSoftmax{-std::numeric_limits<float>::infinity(), 0.0f});
  if (sizes.keys_of(item) == 0) std::fill_n(scratch.output, queries * sizes.head_size, 0.0f);
  const auto visit = [&](const ScoreBlock& block, bool is_first) {
    score(scratch.scores, block, query, key, sizes.head_size, sizes.scale);
    add_bias(scratch.scores, block, item, sizes);
    for (std::int64_t row = 0; row < queries; ++row) {
      const std::int64_t hidden = block.begin(row, item, sizes), end = block.end(row, item, sizes);
      float* const scores = scratch.scores + row * block.keys;
      if (sizes.cap > 0) cap_scores(scores + hidden, end - hidden, 1.0f, sizes.cap);
      block.for_hidden(row, item, sizes, [&](std::int64_t from, std::int64_t to) {
        std::fill(scores + from, scores + to, -std::numeric_limits<float>::infinity());
      });
      std::fill_n(scores, hidden, 0.0f);
      weigh_row(scores + hidden, end - hidden, block.keys - hidden,
                scratch.output + row * sizes.head_size, sizes.head_size, softmax[row]);
    }
    gather_from_keys(scratch.output, sizes.head_size, scratch.scores, block, value, sizes.head_size,
                     !is_first);
  };
  for_key_blocks(item, first_query, queries, sizes, visit);
}

template <class T>
inline void forward_head(T* y, float* log_sum_exp, const AttentionRows<const T>& rows,
                         std::int64_t item, const AttentionSizes& sizes, float* scratch_base) {
  const ForwardScratch scratch(scratch_base, sizes);
  const auto read_keys = [&](std::int64_t first, float* copied) {
    return read_head(rows.keys + first, sizes.key_stride, sizes.keys_of(item), sizes.head_size,
                     copied);
  };
  const HeadRows query = read_head(rows.queries + sizes.queries_at(item), sizes.stride,
                                   sizes.length, sizes.head_size, scratch.query);
  const HeadRows key = read_keys(sizes.keys_at(item), scratch.key);
  const HeadRows value = read_keys(sizes.values_at(item), scratch.value);
  RunningSoftmax softmax[kQueryBlock];
  for (std::int64_t first = 0; first < sizes.length; first += kQueryBlock) {
    const std::int64_t queries = std::min(kQueryBlock, sizes.length - first);
    attend(scratch, softmax, item, first, queries, query, key, value, sizes);
    for (std::int64_t row = 0; row < queries; ++row) {
      T* const to = y + (first + row) * sizes.channels;
      const float* const from = scratch.output + row * sizes.head_size;
      const SoftmaxResult end = sizes.end_softmax(item, softmax[row].highest, softmax[row].total);
#pragma omp simd
      for (std::int64_t i = 0; i < sizes.head_size; ++i) store(to + i, from[i] * end.factor);
      if (log_sum_exp != nullptr) log_sum_exp[first + row] = end.log_sum_exp;
    }
  }
}

}  // namespace

void forward_attention(const Tensor& y, const Tensor& log_sum_exp, const AttentionOperands& from,
                       const AttentionSizes& sizes, const Stream& stream) {
  if (fits_tiles(sizes, y.dtype()))
    return attention_forward_by_tiles(y, log_sum_exp, from, sizes, stream);
  const std::int64_t scratch_elements = ForwardScratch::elements(sizes);
  const Tensor scratch = empty_workspace(threads() * scratch_elements, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const scratch_base = scratch.data<float>();
  float* const sums = optional_data<float>(log_sum_exp);
  visit_real(y.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const AttentionRows<const T> in = from.rows<const T>();
    parallel_items(sizes.items(), [=](std::int64_t worker, std::int64_t item) {
      forward_head(out + sizes.first_of(item), sums ? sums + item * sizes.length : nullptr, in,
                   item, sizes, scratch_base + worker * scratch_elements);
    });
  });
}

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  forward_attention(y, log_sum_exp, {qkv, qkv}, AttentionSizes(qkv, positions, spec), stream);
}

}  // namespace hybrid_trainer::kernels::cpu
