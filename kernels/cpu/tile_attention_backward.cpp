#include "kernels/cpu/tile_attention.h"
#include "kernels/cpu/tile_attention_rows.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// A block of scores, which lie transposed: keys by queries.
constexpr std::int64_t kBlockKeys = 128, kBlockQueries = 256;

/// Scratch of one worker.
struct TileBackwardScratch {
  TileBackwardScratch(float* base, const AttentionSizes& sizes) {
    ScratchCutter cutter(base);
    const std::int64_t length = padded_length(sizes), rows = length * sizes.head_size;
    for (BFloat16** array : {&query, &key, &value, &doutput, &query_columns, &query_transposed,
                             &key_transposed, &doutput_columns, &doutput_transposed})
      *array = cutter.take<BFloat16>(rows);
    dquery = cutter.take<float>(rows);
    dkey = cutter.take<float>(kBlockKeys * sizes.head_size);
    dvalue = cutter.take<float>(kBlockKeys * sizes.head_size);
    scores = cutter.take<float>(kPanel * kBlockQueries);
    dweights = cutter.take<float>(kPanel * kBlockQueries);
    weights = cutter.take<BFloat16>(kPanel * kBlockQueries);
    dscores = cutter.take<BFloat16>(kBlockKeys * kBlockQueries);
    dscores_columns = cutter.take<BFloat16>(kPanel * kBlockKeys);
    log_sum_exp = cutter.take<float>(length);
    corrections = cutter.take<float>(length);
    floats = cutter.floats();
  }
  BFloat16 *query, *key, *value, *doutput;          // rows (T, head_size)
  BFloat16 *query_columns, *doutput_columns;        // packed columns
  BFloat16 *query_transposed, *doutput_transposed;  // packed columns of the transposed
  BFloat16* key_transposed;                         // packed rows of the transposed
  float* dquery;                                    // (head_size, T)
  float *dkey, *dvalue;                             // (kBlockKeys, head_size)
  float *scores, *dweights;                         // (kPanel, kBlockQueries), transposed
  BFloat16* weights;                                // the same
  BFloat16* dscores;                                // (kBlockKeys, kBlockQueries), transposed
  BFloat16* dscores_columns;                        // packed columns of one panel of queries
  float *log_sum_exp, *corrections;                 // (T)
  std::int64_t floats;
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")

inline float dot(const BFloat16* x, const BFloat16* y, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += load(x + i) * load(y + i);
  return sum;
}

/// Scores of one key become weights e^(score·scale − log_sum_exp) of `queries`, and with their
/// gradients those of the scores: weight·(dweight − correction)·scale.
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

/// One head.
class HeadBackward {
 public:
  HeadBackward(const AttentionSizes& sizes, const TileBackwardScratch& scratch)
      : sizes_(sizes), scratch_(scratch), length_(padded_length(sizes)), size_(sizes.head_size) {}

  void read(const BFloat16* qkv, const BFloat16* dy, const BFloat16* y, const float* log_sum_exp);
  void run(BFloat16* dqkv);

 private:
  struct Keys {
    std::int64_t begin, end;
  };
  void backward_block(const Keys& keys, std::int64_t first_query);
  void differentiate_panel(std::int64_t key, BFloat16* dscores, std::int64_t query,
                           std::int64_t end, std::int64_t first_query);
  void add_key_gradients(std::int64_t key, const Keys& keys, const BFloat16* dscores,
                         std::int64_t query, std::int64_t end, std::int64_t first_query);
  void add_query_gradients(const Keys& keys, std::int64_t query, std::int64_t first_query);
  void write_rows(BFloat16* to, const float* sums, const Keys& keys) const;
  void write_queries(BFloat16* to) const;

  const AttentionSizes& sizes_;
  const TileBackwardScratch& scratch_;
  std::int64_t length_, size_;
};

void HeadBackward::read(const BFloat16* qkv, const BFloat16* dy, const BFloat16* y,
                        const float* log_sum_exp) {
  const std::int64_t channels = sizes_.channels, stride = 3 * channels, panels = length_ / kPanel;
  copy_head(scratch_.query, qkv, stride, sizes_);
  copy_head(scratch_.key, qkv + channels, stride, sizes_);
  copy_head(scratch_.value, qkv + 2 * channels, stride, sizes_);
  copy_head(scratch_.doutput, dy, channels, sizes_);
  pack_columns(scratch_.query_columns, scratch_.query, size_, size_ / kPanel, length_);
  pack_columns(scratch_.doutput_columns, scratch_.doutput, size_, size_ / kPanel, length_);
  pack_columns_of_transposed(scratch_.query_transposed, scratch_.query, size_, panels, size_);
  pack_columns_of_transposed(scratch_.doutput_transposed, scratch_.doutput, size_, panels, size_);
  pack_rows_of_transposed(scratch_.key_transposed, scratch_.key, size_, size_ / kPanel, length_);
  std::fill(scratch_.log_sum_exp + sizes_.length, scratch_.log_sum_exp + length_, 0.0f);
  std::fill(scratch_.corrections + sizes_.length, scratch_.corrections + length_, 0.0f);
  std::copy_n(log_sum_exp, sizes_.length, scratch_.log_sum_exp);
  for (std::int64_t t = 0; t < sizes_.length; ++t)
    scratch_.corrections[t] = dot(dy + t * channels, y + t * channels, size_);
}

/// weights and dscores of 32 keys for the queries of a block that see them.
void HeadBackward::differentiate_panel(std::int64_t key, BFloat16* dscores, std::int64_t query,
                                       std::int64_t end, std::int64_t first_query) {
  const RowPanel keys = RowPanel::in_place(scratch_.key + key * size_, size_);
  const RowPanel values = RowPanel::in_place(scratch_.value + key * size_, size_);
  for (std::int64_t q = query; q < end; q += kPanel) {
    const std::int64_t at = q - first_query;
    const BFloat16* const queries = scratch_.query_transposed + q * size_;
    const BFloat16* const doutputs = scratch_.doutput_transposed + q * size_;
    multiply_panels<Sum::kNew>(scratch_.scores + at, kBlockQueries, keys, queries, size_, doutputs);
    multiply_panels<Sum::kNew>(scratch_.dweights + at, kBlockQueries, values, doutputs, size_,
                               queries + kPanel * size_);
  }
  for (std::int64_t row = 0; row < kPanel; ++row) {
    const std::int64_t at = row * kBlockQueries + query - first_query;
    differentiate_row(scratch_.weights + at, dscores + at, scratch_.scores + at,
                      scratch_.dweights + at, scratch_.log_sum_exp + query,
                      scratch_.corrections + query, end - query, sizes_.scale);
    const std::int64_t unseeing = std::max<std::int64_t>(key + row - query, 0);
    std::fill_n(scratch_.weights + at, std::min(unseeing, kPanel), BFloat16{});
    std::fill_n(dscores + at, std::min(unseeing, kPanel), BFloat16{});
  }
}

/// Adds to the gradients of 32 keys and values what the queries of a block give.
void HeadBackward::add_key_gradients(std::int64_t key, const Keys& keys, const BFloat16* dscores,
                                     std::int64_t query, std::int64_t end,
                                     std::int64_t first_query) {
  const std::int64_t at = query - first_query;
  const RowPanel weights = RowPanel::in_place(scratch_.weights + at, kBlockQueries);
  const RowPanel gradients = RowPanel::in_place(dscores + at, kBlockQueries);
  const auto add = [&]<Sum kSum>() {
    for (std::int64_t column = 0; column < size_; column += kPanel) {
      const std::int64_t to = (key - keys.begin) * size_ + column;
      const std::int64_t from = column * length_ + query * kPanel;
      const BFloat16* const doutputs = scratch_.doutput_columns + from;
      const BFloat16* const queries = scratch_.query_columns + from;
      multiply_panels<kSum>(scratch_.dvalue + to, size_, weights, doutputs, end - query, queries);
      multiply_panels<kSum>(scratch_.dkey + to, size_, gradients, queries, end - query,
                            doutputs + kPanel * length_);
    }
  };
  if (first_query == keys.begin) {
    add.operator()<Sum::kNew>();
  } else {
    add.operator()<Sum::kAdded>();
  }
}

/// Adds to the gradients of 32 queries what the keys that they see give.
void HeadBackward::add_query_gradients(const Keys& keys, std::int64_t query,
                                       std::int64_t first_query) {
  const std::int64_t depth = std::min(keys.end, query + kPanel) - keys.begin;
  pack_columns(scratch_.dscores_columns, scratch_.dscores + query - first_query, kBlockQueries, 1,
               depth);
  const auto add = [&]<Sum kSum>() {
    for (std::int64_t row = 0; row < size_; row += kPanel) {
      const RowPanel rows =
          RowPanel::packed(scratch_.key_transposed + row * length_ + keys.begin * kPanel);
      multiply_panels<kSum>(scratch_.dquery + row * length_ + query, length_, rows,
                            scratch_.dscores_columns, depth, scratch_.dscores_columns);
    }
  };
  if (keys.begin == 0) {
    add.operator()<Sum::kNew>();
  } else {
    add.operator()<Sum::kAdded>();
  }
}

void HeadBackward::backward_block(const Keys& keys, std::int64_t first_query) {
  const std::int64_t end = std::min(first_query + kBlockQueries, length_);
  for (std::int64_t key = keys.begin; key < keys.end; key += kPanel) {
    BFloat16* const dscores = scratch_.dscores + (key - keys.begin) * kBlockQueries;
    const std::int64_t query = std::max(key, first_query);
    differentiate_panel(key, dscores, query, end, first_query);
    add_key_gradients(key, keys, dscores, query, end, first_query);
  }
  for (std::int64_t query = first_query; query < end; query += kPanel)
    add_query_gradients(keys, query, first_query);
}

void HeadBackward::write_rows(BFloat16* to, const float* sums, const Keys& keys) const {
  for (std::int64_t t = keys.begin; t < std::min(keys.end, sizes_.length); ++t) {
    const float* const from = sums + (t - keys.begin) * size_;
    BFloat16* const row = to + t * 3 * sizes_.channels;
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
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (t + j) * 3 * sizes_.channels + i),
                            row);
      }
    }
  }
}

void HeadBackward::run(BFloat16* dqkv) {
  const TileRegisters registers;
  for (std::int64_t key = 0; key < length_; key += kBlockKeys) {
    const Keys keys{key, std::min(key + kBlockKeys, length_)};
    for (std::int64_t query = key; query < length_; query += kBlockQueries)
      backward_block(keys, query);
    write_rows(dqkv + sizes_.channels, scratch_.dkey, keys);
    write_rows(dqkv + 2 * sizes_.channels, scratch_.dvalue, keys);
  }
  write_queries(dqkv);
}

#pragma GCC pop_options

}  // namespace

void attention_backward_by_tiles(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                                 const Tensor& log_sum_exp, const Tensor& qkv,
                                 const AttentionSizes& sizes, const Stream& stream) {
  const std::int64_t floats = TileBackwardScratch(nullptr, sizes).floats;
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  const float* const sums = log_sum_exp.data<float>();
  auto* const gradient = dqkv.data<BFloat16>();
  const auto* const dout = dy.data<BFloat16>();
  const auto* const out = y.data<BFloat16>();
  const auto* const in = qkv.data<BFloat16>();
  parallel_items(sizes.batch * sizes.heads, [=](std::int64_t worker, std::int64_t item) {
    const std::int64_t at = sizes.first_of(item), qkv_at = sizes.first_in_qkv(item);
    const TileBackwardScratch arrays(base + worker * floats, sizes);
    HeadBackward head(sizes, arrays);
    head.read(in + qkv_at, dout + at, out + at, sums + item * sizes.length);
    head.run(gradient + qkv_at);
  });
}

}  // namespace hybrid_trainer::kernels::cpu
