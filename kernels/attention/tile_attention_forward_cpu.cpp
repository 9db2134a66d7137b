#include <limits>
#include <span>

#include "kernels/attention/tile_attention_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

struct TileForwardScratch {
  TileForwardScratch(float* base, const AttentionSizes& sizes) {
    ScratchArena cutter(base);
    const std::int64_t length = padded_keys(sizes), rows = length * sizes.head_size;
    query = cutter.take<BFloat16>(padded_queries(sizes) * sizes.head_size);
    copied = cutter.take<BFloat16>(rows);
    key = cutter.take<BFloat16>(rows);
    value = cutter.take<BFloat16>(rows);
    scores = cutter.take<float>(kPanel * length);
    weights = cutter.take<BFloat16>(kPanel * length);
    output = cutter.take<float>(kPanel * sizes.head_size);
    seen = cutter.take<KeyRange>(length / kPanel);
    floats = cutter.floats();
  }
  BFloat16* query;    // rows
  BFloat16* copied;   // rows of keys, then of values
  BFloat16* key;      // packed columns of keysᵀ
  BFloat16* value;    // packed columns
  float* scores;      // (kPanel, keys), before scaling
  BFloat16* weights;  // (kPanel, keys)
  float* output;      // (kPanel, head_size)
  KeyRange* seen;     // runs of keys that a query panel attends to
  std::int64_t floats;
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")

/// Highest scaled score of a query, and the sum of the weights e^(score − highest).
struct Softmax {
  float highest, total;
};

inline float highest_of(const float* scores, std::int64_t count, float highest) {
#pragma omp simd reduction(max : highest)
  for (std::int64_t i = 0; i < count; ++i) highest = scores[i] > highest ? scores[i] : highest;
  return highest;
}

/// Replaces scores by weights. Returns the sum of the weights.
inline float weigh(BFloat16* weights, const float* scores, std::int64_t count, float highest,
                   float scale) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) {
    const float weight = exponential((scores[i] - highest) * scale);
    store(weights + i, weight);
    total += weight;
  }
  return total;
}

/// Replaces a query's scores in the ranges `seen` by weights, which are 0 outside `visible`.
/// Element 0 of the scores is for key `first`.
inline Softmax weigh_row(BFloat16* weights, float* scores, std::int64_t first,
                         std::span<const KeyRange> seen, KeyRange visible,
                         const AttentionSizes& sizes) {
  const auto within = [&](const KeyRange& keys) {
    const std::int64_t begin = std::clamp(visible.begin, keys.begin, keys.end);
    return KeyRange{begin, std::clamp(visible.end, begin, keys.end)};
  };
  float highest = -std::numeric_limits<float>::infinity();
  for (const KeyRange& keys : seen) {
    const auto [begin, end] = within(keys);
    if (sizes.cap > 0) cap_scores(scores + begin - first, end - begin, sizes.scale, sizes.cap);
    highest = highest_of(scores + begin - first, end - begin, highest);
  }
  const float scale = sizes.cap > 0 ? 1.0f : sizes.scale;
  float total = 0;
  for (const KeyRange& keys : seen) {
    const auto [begin, end] = within(keys);
    BFloat16* const row = weights - first;
    std::fill(row + keys.begin, row + begin, BFloat16{});
    total += weigh(row + begin, scores + begin - first, end - begin, highest, scale);
    std::fill(row + end, row + keys.end, BFloat16{});
  }
  return {highest * scale, total};
}

inline void gather_values(const PanelRegisters& on, const TileForwardScratch& scratch,
                          std::int64_t begin, std::span<const KeyRange> seen, std::int64_t column,
                          const AttentionSizes& sizes) {
  const std::int64_t length = padded_keys(sizes);
  float* const to = scratch.output + column;
  for (const KeyRange& keys : seen) {
    const RowPanel weights = RowPanel::in_place(scratch.weights + keys.begin - begin, length);
    const BFloat16* const panel = scratch.value + column * length + keys.begin * kPanel;
    const auto multiply = [&]<Sum kSum>() {
      multiply_on<kSum>(on, to, sizes.head_size, weights, panel, keys.end - keys.begin,
                        panel + kPanel * length);
    };
    if (keys.begin == seen.front().begin) {
      multiply.operator()<Sum::kNew>();
    } else {
      multiply.operator()<Sum::kAdded>();
    }
  }
}

/// Computes attention of 32 queries over the panels from their first to their last key.
void attend(const PanelRegisters& on, const TileForwardScratch& scratch, BFloat16* y,
            float* log_sum_exp, std::int64_t item, std::int64_t first,
            const AttentionSizes& sizes) {
  const std::int64_t length = padded_keys(sizes), size = sizes.head_size;
  const std::int64_t begin = sizes.first_key(item, first) / kPanel * kPanel;
  const std::int64_t end = panel_end(item, first + kPanel - 1, sizes);
  const RowPanel queries = RowPanel::in_place(scratch.query + first * size, size);
  std::int64_t ranges = 0;
  for_visible_keys(item, first, begin, end, sizes, [&](std::int64_t from, std::int64_t to) {
    scratch.seen[ranges++] = {from, to};
    for (std::int64_t key = from; key < to; key += kPanel) {
      const BFloat16* const panel = scratch.key + key * size;
      multiply_on<Sum::kNew>(on, scratch.scores + key - begin, length, queries, panel, size,
                             panel + kPanel * size);
    }
  });
  const std::span<const KeyRange> seen(scratch.seen, static_cast<std::size_t>(ranges));
  Softmax softmax[kPanel];
  const std::int64_t rows = std::min(kPanel, sizes.length - first);
  for (std::int64_t row = 0; row < kPanel; ++row) {
    const std::int64_t query = std::min(first + row, sizes.length - 1);
    const KeyRange visible{sizes.masks() ? sizes.first_key(item, query) : begin,
                           sizes.bidirectional ? sizes.end_key(item, query) : first + row + 1};
    softmax[row] = weigh_row(scratch.weights + row * length, scratch.scores + row * length, begin,
                             seen, visible, sizes);
  }
  if (ranges == 0) std::fill_n(scratch.output, kPanel * size, 0.0f);
  for (std::int64_t column = 0; column < size; column += kPanel)
    gather_values(on, scratch, begin, seen, column, sizes);
  for (std::int64_t row = 0; row < rows; ++row) {
    BFloat16* const to = y + (first + row) * sizes.channels;
    const float* const from = scratch.output + row * size;
    const SoftmaxResult softmax_end =
        sizes.end_softmax(item, softmax[row].highest, softmax[row].total);
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) store(to + i, from[i] * softmax_end.factor);
    if (log_sum_exp != nullptr) log_sum_exp[first + row] = softmax_end.log_sum_exp;
  }
}

void forward_head(BFloat16* y, float* log_sum_exp, const AttentionRows<const BFloat16>& rows,
                  std::int64_t item, const AttentionSizes& sizes,
                  const TileForwardScratch& scratch) {
  const PanelRegisters registers;
  const std::int64_t size = sizes.head_size, length = padded_keys(sizes);
  copy_queries(scratch.query, rows.queries + sizes.queries_at(item), sizes.stride, sizes);
  copy_keys(scratch.copied, rows.keys + sizes.keys_at(item), item, sizes);
  pack_columns_of_transposed(scratch.key, scratch.copied, size, length / kPanel, size);
  copy_keys(scratch.copied, rows.keys + sizes.values_at(item), item, sizes);
  pack_columns(scratch.value, scratch.copied, size, size / kPanel, length);
  for (std::int64_t first = 0; first < sizes.length; first += kPanel)
    attend(registers, scratch, y, log_sum_exp, item, first, sizes);
}

#pragma GCC pop_options

}  // namespace

bool fits_tiles(const AttentionSizes& sizes, DType dtype) {
  return multiplies_bfloat16() && dtype == DType::kBF16 && sizes.head_size % kPanel == 0 &&
         sizes.bias == nullptr && (!sizes.pattern.is_on() || sizes.pattern.block % kPanel == 0);
}

void attention_forward_by_tiles(const Tensor& y, const Tensor& log_sum_exp,
                                const AttentionOperands& from, const AttentionSizes& sizes,
                                const Stream& stream) {
  const std::int64_t floats = TileForwardScratch(nullptr, sizes).floats;
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  float* const sums = optional_data<float>(log_sum_exp);
  auto* const out = y.data<BFloat16>();
  const auto in = from.rows<const BFloat16>();
  parallel_items(sizes.items(), [=](std::int64_t worker, std::int64_t item) {
    forward_head(out + sizes.first_of(item), sums ? sums + item * sizes.length : nullptr, in, item,
                 sizes, TileForwardScratch(base + worker * floats, sizes));
  });
}

}  // namespace hybrid_trainer::kernels::cpu
