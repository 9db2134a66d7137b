#pragma once

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/panel_products.h"
#include "kernels/cpu/scratch_cutter.h"

/// What both directions of attention by panels of BF16 share.

namespace hybrid_trainer::kernels::cpu {

/// Queries and keys are padded with zero rows to whole panels. A padded key is seen by padded
/// queries at most, whose results nobody takes.
inline std::int64_t whole_panels(std::int64_t rows) {
  return (rows + kPanel - 1) / kPanel * kPanel;
}
inline std::int64_t padded_queries(const AttentionSizes& sizes) {
  return whole_panels(sizes.length);
}
inline std::int64_t padded_keys(const AttentionSizes& sizes) {
  return whole_panels(sizes.key_length);
}

/// Where the panels of keys end that a query, a padded one too, and those before it see.
inline std::int64_t panel_end(std::int64_t item, std::int64_t query, const AttentionSizes& sizes) {
  const std::int64_t end =
      sizes.two_way ? sizes.end_key(item, std::min(query, sizes.length - 1)) : query + 1;
  return whole_panels(end);
}

/// Calls visit(begin, end) for the panels of keys in a row of [from, end) that the pattern, whose
/// blocks are of whole panels, lets the panel of queries from `query` on see; all without one.
template <class Visit>
inline void for_seen_keys(std::int64_t item, std::int64_t query, std::int64_t from,
                          std::int64_t end, const AttentionSizes& sizes, const Visit& visit) {
  while (from < end) {
    const KeyRange keys = sizes.next_keys(item, query, query, from, end, end);
    if (keys.begin < keys.end) visit(keys.begin, keys.end);
    from = keys.end;
  }
}

/// The same for the panels of queries that see the panel of keys from `key` on.
template <class Visit>
inline void for_seeing_queries(std::int64_t item, std::int64_t key, std::int64_t from,
                               std::int64_t end, const AttentionSizes& sizes, const Visit& visit) {
  if (!sizes.pattern.is_on()) return visit(from, end);
  const auto sees = [&](std::int64_t query) {
    return sizes.pattern.sees(sizes.head_of(item), sizes.block_of(query), sizes.block_of(key));
  };
  for (std::int64_t begin = from; begin < end; begin = from) {
    from = begin + kPanel;
    if (!sees(begin)) continue;
    while (from < end && sees(from)) from += kPanel;
    visit(begin, from);
  }
}

/// Copies `count` rows of one head, of `size` numbers, close together, with zeros up to `padded` rows.
inline void copy_head(BFloat16* to, const BFloat16* rows, std::int64_t stride, std::int64_t count,
                      std::int64_t padded, std::int64_t size) {
  for (std::int64_t t = 0; t < count; ++t) std::copy_n(rows + t * stride, size, to + t * size);
  std::fill(to + count * size, to + padded * size, BFloat16{});
}
/// Rows of queries, of gradients of y, or of y.
inline void copy_queries(BFloat16* to, const BFloat16* rows, std::int64_t stride,
                         const AttentionSizes& sizes) {
  copy_head(to, rows, stride, sizes.length, padded_queries(sizes), sizes.head_size);
}
/// Rows of keys or values of an item; zeros for those that no query sees.
inline void copy_keys(BFloat16* to, const BFloat16* rows, std::int64_t item,
                      const AttentionSizes& sizes) {
  copy_head(to, rows, sizes.key_stride, sizes.keys_of(item), padded_keys(sizes), sizes.head_size);
}

}  // namespace hybrid_trainer::kernels::cpu
