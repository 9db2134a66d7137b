#pragma once

#include <cstdint>

namespace hybrid_trainer {

/// T5's buckets of distances between tokens: small distances have one each, larger ones share them by
/// their logarithms, and from `most` on all are in the last. Two ways, keys behind a query have the
/// second half; else all of these are in bucket 0. Source: Raffel et al. 2020, section 2.1.
struct RelativeBuckets {
  std::int64_t count = 32;
  std::int64_t most = 128;
  bool two_way = false;
  /// Of a key so many tokens behind its query; before it, of a negative number.
  std::int64_t of(std::int64_t distance) const;
};

}  // namespace hybrid_trainer
