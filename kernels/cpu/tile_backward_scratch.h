#pragma once

#include "kernels/cpu/scratch_cutter.h"
#include "kernels/cpu/tile_attention.h"
#include "kernels/cpu/tile_attention_rows.h"

namespace hybrid_trainer::kernels::cpu {

/// A block of scores, which lie transposed: keys by queries.
inline constexpr std::int64_t kBlockKeys = 128, kBlockQueries = 256;

/// Scratch of one worker.
struct TileBackwardScratch {
  TileBackwardScratch(float* base, const AttentionSizes& sizes) {
    ScratchCutter cutter(base);
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
  BFloat16 *query_transposed, *doutput_transposed;  // packed columns of the transposed
  BFloat16* key_transposed;                         // packed rows of the transposed
  float* dquery;                                    // (head_size, T)
  float *dkey, *dvalue;                             // (kBlockKeys or, of a group, keys, head_size)
  float *scores, *dweights;                         // (kPanel, kBlockQueries), transposed
  BFloat16* weights;                                // the same
  BFloat16* dscores;                                // (kBlockKeys, kBlockQueries), transposed
  BFloat16* dscores_columns;                        // packed columns of one panel of queries
  float *log_sum_exp, *corrections;                 // (T)
  std::int64_t floats;
};

}  // namespace hybrid_trainer::kernels::cpu
