#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/tile_attention_cpu.h"

namespace hybrid_trainer::kernels::cpu {

/// Size of a block of scores, which are stored transposed: keys by queries.
inline constexpr std::int64_t kBlockKeys = 128, kBlockQueries = 256;

struct TileBackwardScratch {
  TileBackwardScratch(float* base, const AttentionSizes& sizes) {
    ScratchArena cutter(base);
    const std::int64_t length = padded_queries(sizes), rows = length * sizes.head_size;
    const std::int64_t key_rows = padded_keys(sizes) * sizes.head_size;
    for (BFloat16** array : {&query, &doutput, &query_columns, &query_transposed, &doutput_columns,
                             &doutput_transposed})
      *array = cutter.take<BFloat16>(rows);
    for (BFloat16** array : {&key, &value, &key_transposed})
      *array = cutter.take<BFloat16>(key_rows);
    dquery = cutter.take<float>(rows);
    const std::int64_t key_sums = sizes.group == 1 ? kBlockKeys * sizes.head_size : key_rows;
    dkey = cutter.take<float>(key_sums);
    dvalue = cutter.take<float>(key_sums);
    scores = cutter.take<float>(kPanel * kBlockQueries);
    dweights = cutter.take<float>(kPanel * kBlockQueries);
    weights = cutter.take<BFloat16>(kPanel * kBlockQueries);
    dscores = cutter.take<BFloat16>(kBlockKeys * kBlockQueries);
    dscores_columns = cutter.take<BFloat16>(kPanel * kBlockKeys);
    log_sum_exp = cutter.take<float>(length);
    corrections = cutter.take<float>(length);
    floats = cutter.floats();
  }
  BFloat16 *query, *key, *value, *doutput;          // rows (T or keys, head_size)
  BFloat16 *query_columns, *doutput_columns;        // packed columns
  BFloat16 *query_transposed, *doutput_transposed;  // packed columns of the transpose
  BFloat16* key_transposed;                         // packed rows of the transpose
  float* dquery;                                    // (head_size, T)
  float *dkey, *dvalue;                             // (kBlockKeys or all keys, head_size)
  float *scores, *dweights;                         // (kPanel, kBlockQueries), transposed
  BFloat16* weights;                                // also (kPanel, kBlockQueries), transposed
  BFloat16* dscores;                                // (kBlockKeys, kBlockQueries), transposed
  BFloat16* dscores_columns;                        // packed columns of one panel of queries
  float *log_sum_exp, *corrections;                 // (T)
  std::int64_t floats;
};

// Gradients of a row of scores: one key and consecutive queries. Requires AVX-512 BF16.

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")

/// Computes a key's weights and score gradients weight·(dweight − correction)·scale.
inline void differentiate_row(BFloat16* weights, BFloat16* dscores, const float* scores,
                              const float* dweights, const float* log_sum_exp,
                              const float* corrections, std::int64_t queries, float scale) {
#pragma omp simd
  for (std::int64_t i = 0; i < queries; ++i) {
    const float weight = exponential(scores[i] * scale - log_sum_exp[i]);
    store(weights + i, weight);
    store(dscores + i, weight * (dweights[i] - corrections[i]) * scale);
  }
}

/// differentiate_row for scores capped at c: also multiplies by the derivative of c·tanh(s/c).
inline void differentiate_capped_row(BFloat16* weights, BFloat16* dscores, const float* scores,
                                     const float* dweights, const float* log_sum_exp,
                                     const float* corrections, std::int64_t queries, float scale,
                                     float cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < queries; ++i) {
    const float tangent = hyperbolic_tangent(scores[i] * scale / cap);
    const float weight = exponential(cap * tangent - log_sum_exp[i]);
    store(weights + i, weight);
    store(dscores + i,
          weight * (dweights[i] - corrections[i]) * (1.0f - tangent * tangent) * scale);
  }
}

/// Masks a key for `queries` queries, except for queries [begin, end).
inline void hide(BFloat16* weights, BFloat16* dscores, std::int64_t queries, std::int64_t begin,
                 std::int64_t end) {
  begin = std::clamp<std::int64_t>(begin, 0, queries);
  end = std::clamp(end, begin, queries);
  for (BFloat16* const row : {weights, dscores}) {
    std::fill(row, row + begin, BFloat16{});
    std::fill(row + end, row + queries, BFloat16{});
  }
}

#pragma GCC pop_options

namespace {

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")

inline float dot(const BFloat16* x, const BFloat16* y, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += load(x + i) * load(y + i);
  return sum;
}

/// Differentiates the query heads that share keys and values, one after the other.
class HeadBackward {
 public:
  HeadBackward(const AttentionSizes& sizes, const TileBackwardScratch& scratch)
      : sizes_(sizes),
        scratch_(scratch),
        length_(padded_queries(sizes)),
        key_length_(padded_keys(sizes)),
        size_(sizes.head_size) {}

  void read_keys(const BFloat16* keys, const BFloat16* values, std::int64_t item);
  void read_queries(const BFloat16* queries, const BFloat16* dy, const BFloat16* y,
                    const float* log_sum_exp, std::int64_t item);
  /// `member`: index of the head in the group.
  void run(BFloat16* dqueries, BFloat16* dkeys, BFloat16* dvalues, std::int64_t member);

 private:
  struct Keys {
    std::int64_t begin, end, first_query, end_query;
  };
  Keys block_of(std::int64_t key) const;
  void backward_block(const Keys& keys, std::int64_t first_query);
  void differentiate_panel(std::int64_t key, BFloat16* dscores, std::int64_t query,
                           std::int64_t end, std::int64_t first_query);
  void add_key_gradients(std::int64_t key, const Keys& keys, const BFloat16* dscores,
                         std::int64_t query, std::int64_t end, std::int64_t first_query);
  void add_query_gradients(const Keys& keys, std::int64_t query, std::int64_t first_query);
  void write_rows(BFloat16* to, const float* sums, const Keys& keys) const;
  void write_queries(BFloat16* to) const;

  std::int64_t sums_at(std::int64_t key, const Keys& keys) const {
    return (sizes_.group == 1 ? key - keys.begin : key) * size_;
  }

  const AttentionSizes& sizes_;
  const TileBackwardScratch& scratch_;
  /// Returns whether some queries or keys may not contribute to the gradients of a block of keys.
  bool sums_begin_at_zero() const { return sizes_.pattern.is_on() || sizes_.lengths != nullptr; }

  std::int64_t length_, key_length_, size_;  // padded
  PanelRegisters registers_;
  std::int64_t item_ = 0;
  bool first_member_ = true;
};

void HeadBackward::read_keys(const BFloat16* keys, const BFloat16* values, std::int64_t item) {
  copy_keys(scratch_.key, keys, item, sizes_);
  copy_keys(scratch_.value, values, item, sizes_);
  pack_rows_of_transposed(scratch_.key_transposed, scratch_.key, size_, size_ / kPanel,
                          key_length_);
}

void HeadBackward::read_queries(const BFloat16* queries, const BFloat16* dy, const BFloat16* y,
                                const float* log_sum_exp, std::int64_t item) {
  item_ = item;
  const std::int64_t channels = sizes_.channels, panels = length_ / kPanel;
  copy_queries(scratch_.query, queries, sizes_.stride, sizes_);
  copy_queries(scratch_.doutput, dy, channels, sizes_);
  pack_columns(scratch_.query_columns, scratch_.query, size_, size_ / kPanel, length_);
  pack_columns(scratch_.doutput_columns, scratch_.doutput, size_, size_ / kPanel, length_);
  pack_columns_of_transposed(scratch_.query_transposed, scratch_.query, size_, panels, size_);
  pack_columns_of_transposed(scratch_.doutput_transposed, scratch_.doutput, size_, panels, size_);
  std::fill(scratch_.log_sum_exp + sizes_.length, scratch_.log_sum_exp + length_, 0.0f);
  std::fill(scratch_.corrections + sizes_.length, scratch_.corrections + length_, 0.0f);
  std::copy_n(log_sum_exp, sizes_.length, scratch_.log_sum_exp);
  for (std::int64_t t = 0; t < sizes_.length; ++t)
    scratch_.corrections[t] = dot(dy + t * channels, y + t * channels, size_);
  if (sizes_.masks()) std::fill_n(scratch_.dquery, length_ * size_, 0.0f);
}

/// Computes weights and dscores of 32 keys for the queries of a block that attend to them.
void HeadBackward::differentiate_panel(std::int64_t key, BFloat16* dscores, std::int64_t query,
                                       std::int64_t end, std::int64_t first_query) {
  const RowPanel keys = RowPanel::in_place(scratch_.key + key * size_, size_);
  const RowPanel values = RowPanel::in_place(scratch_.value + key * size_, size_);
  for (std::int64_t q = query; q < end; q += kPanel) {
    const std::int64_t at = q - first_query;
    const BFloat16* const queries = scratch_.query_transposed + q * size_;
    const BFloat16* const doutputs = scratch_.doutput_transposed + q * size_;
    multiply_on<Sum::kNew>(registers_, scratch_.scores + at, kBlockQueries, keys, queries, size_,
                           doutputs);
    multiply_on<Sum::kNew>(registers_, scratch_.dweights + at, kBlockQueries, values, doutputs,
                           size_, queries + kPanel * size_);
  }
  for (std::int64_t row = 0; row < kPanel; ++row) {
    const std::int64_t at = row * kBlockQueries + query - first_query;
    if (sizes_.cap > 0) {
      differentiate_capped_row(scratch_.weights + at, dscores + at, scratch_.scores + at,
                               scratch_.dweights + at, scratch_.log_sum_exp + query,
                               scratch_.corrections + query, end - query, sizes_.scale, sizes_.cap);
    } else {
      differentiate_row(scratch_.weights + at, dscores + at, scratch_.scores + at,
                        scratch_.dweights + at, scratch_.log_sum_exp + query,
                        scratch_.corrections + query, end - query, sizes_.scale);
    }
    const std::int64_t own = key + row;
    const bool exists = own < sizes_.key_length;  // else padded and masked
    hide(scratch_.weights + at, dscores + at, end - query,
         exists ? sizes_.first_query(item_, own) - query : 0,
         exists ? sizes_.end_query(item_, own) - query : 0);
  }
}

/// Adds the contribution of a block's queries to the gradients of 32 keys and values.
void HeadBackward::add_key_gradients(std::int64_t key, const Keys& keys, const BFloat16* dscores,
                                     std::int64_t query, std::int64_t end,
                                     std::int64_t first_query) {
  const std::int64_t at = query - first_query;
  const RowPanel weights = RowPanel::in_place(scratch_.weights + at, kBlockQueries);
  const RowPanel gradients = RowPanel::in_place(dscores + at, kBlockQueries);
  const auto add = [&]<Sum kSum>() {
    for (std::int64_t column = 0; column < size_; column += kPanel) {
      const std::int64_t to = sums_at(key, keys) + column;
      const std::int64_t from = column * length_ + query * kPanel;
      const BFloat16* const doutputs = scratch_.doutput_columns + from;
      const BFloat16* const queries = scratch_.query_columns + from;
      multiply_on<kSum>(registers_, scratch_.dvalue + to, size_, weights, doutputs, end - query,
                        queries);
      multiply_on<kSum>(registers_, scratch_.dkey + to, size_, gradients, queries, end - query,
                        doutputs + kPanel * length_);
    }
  };
  if (first_member_ && first_query == keys.first_query && !sums_begin_at_zero()) {
    add.operator()<Sum::kNew>();
  } else {
    add.operator()<Sum::kAdded>();
  }
}

/// Adds the contribution of the block's keys to the gradients of 32 queries.
void HeadBackward::add_query_gradients(const Keys& keys, std::int64_t query,
                                       std::int64_t first_query) {
  const std::int64_t seen = std::min(keys.end, panel_end(item_, query + kPanel - 1, sizes_));
  for_visible_keys(
      item_, query, keys.begin, seen, sizes_, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t at = (begin - keys.begin) * kBlockQueries + query - first_query;
        pack_columns(scratch_.dscores_columns, scratch_.dscores + at, kBlockQueries, 1,
                     end - begin);
        const auto add = [&]<Sum kSum>() {
          for (std::int64_t row = 0; row < size_; row += kPanel) {
            const RowPanel rows =
                RowPanel::packed(scratch_.key_transposed + row * key_length_ + begin * kPanel);
            multiply_on<kSum>(registers_, scratch_.dquery + row * length_ + query, length_, rows,
                              scratch_.dscores_columns, end - begin, scratch_.dscores_columns);
          }
        };
        if (keys.begin == 0 && !sizes_.masks()) {
          add.operator()<Sum::kNew>();
        } else {
          add.operator()<Sum::kAdded>();
        }
      });
}

void HeadBackward::backward_block(const Keys& keys, std::int64_t first_query) {
  const std::int64_t end = std::min(first_query + kBlockQueries, length_);
  for (std::int64_t key = keys.begin; key < keys.end; key += kPanel) {
    BFloat16* const dscores = scratch_.dscores + (key - keys.begin) * kBlockQueries;
    const std::int64_t query = sizes_.bidirectional ? first_query : std::max(key, first_query);
    for_attending_queries(item_, key, query, end, sizes_, [&](std::int64_t from, std::int64_t to) {
      differentiate_panel(key, dscores, from, to, first_query);
      add_key_gradients(key, keys, dscores, from, to, first_query);
    });
  }
  for (std::int64_t query = first_query; query < end; query += kPanel)
    add_query_gradients(keys, query, first_query);
}

void HeadBackward::write_rows(BFloat16* to, const float* sums, const Keys& keys) const {
  for (std::int64_t t = keys.begin; t < std::min(keys.end, sizes_.key_length); ++t) {
    const float* const from = sums + sums_at(t, keys);
    BFloat16* const row = to + t * sizes_.key_stride;
#pragma omp simd
    for (std::int64_t i = 0; i < size_; ++i) store(row + i, from[i]);
  }
}

void HeadBackward::write_queries(BFloat16* to) const {
  for (std::int64_t t = 0; t < sizes_.length; t += kTileRows) {
    for (std::int64_t i = 0; i < size_; i += kTileRows) {
      __m512i words[kTileRows];
      for (std::int64_t j = 0; j < kTileRows; ++j)
        words[j] = _mm512_loadu_si512(scratch_.dquery + (i + j) * length_ + t);
      transpose_words(words);
      for (std::int64_t j = 0; j < std::min(kTileRows, sizes_.length - t); ++j) {
        const auto row =
            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_castsi512_ps(words[j])));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (t + j) * sizes_.stride + i), row);
      }
    }
  }
}

HeadBackward::Keys HeadBackward::block_of(std::int64_t key) const {
  const std::int64_t end = std::min(key + kBlockKeys, key_length_);
  const std::int64_t last = std::min(end, sizes_.key_length) - 1;
  return {key, end, sizes_.first_query(item_, key) / kPanel * kPanel,
          sizes_.end_query(item_, sizes_.across ? key : last)};
}

void HeadBackward::run(BFloat16* dqueries, BFloat16* dkeys, BFloat16* dvalues,
                       std::int64_t member) {
  first_member_ = member == 0;
  for (std::int64_t key = 0; key < key_length_; key += kBlockKeys) {
    const Keys keys = block_of(key);
    if (first_member_ && sums_begin_at_zero()) {
      for (float* const sums : {scratch_.dkey, scratch_.dvalue})
        std::fill_n(sums + sums_at(key, keys), (keys.end - key) * size_, 0.0f);
    }
    for (std::int64_t query = keys.first_query; query < keys.end_query; query += kBlockQueries)
      backward_block(keys, query);
    if (member + 1 < sizes_.group) continue;
    write_rows(dkeys, scratch_.dkey, keys);
    write_rows(dvalues, scratch_.dvalue, keys);
  }
  write_queries(dqueries);
}

#pragma GCC pop_options

}  // namespace

void attention_backward_by_tiles(const AttentionOperands& gradients,
                                 const AttentionResults& results, const AttentionOperands& from,
                                 const AttentionSizes& sizes, const Stream& stream) {
  const std::int64_t floats = TileBackwardScratch(nullptr, sizes).floats;
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  const float* const sums = results.log_sum_exp.data<float>();
  const auto gradient = gradients.rows<BFloat16>();
  const auto* const dout = results.dy.data<BFloat16>();
  const auto* const out = results.y.data<BFloat16>();
  const auto in = from.rows<const BFloat16>();
  parallel_items(sizes.items() / sizes.group, [=](std::int64_t worker, std::int64_t shared) {
    const TileBackwardScratch arrays(base + worker * floats, sizes);
    const std::int64_t first = shared * sizes.group, keys = sizes.keys_at(first),
                       values = sizes.values_at(first);
    HeadBackward head(sizes, arrays);
    head.read_keys(in.keys + keys, in.keys + values, first);
    for (std::int64_t member = 0; member < sizes.group; ++member) {
      const std::int64_t item = first + member, at = sizes.first_of(item),
                         queries = sizes.queries_at(item);
      head.read_queries(in.queries + queries, dout + at, out + at, sums + item * sizes.length,
                        item);
      head.run(gradient.queries + queries, gradient.keys + keys, gradient.keys + values, member);
    }
  });
}

}  // namespace hybrid_trainer::kernels::cpu
