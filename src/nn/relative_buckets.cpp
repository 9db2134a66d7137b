#include "hybrid_trainer/nn/relative_buckets.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// In f32, as T5 is trained: at some distances double precision gives a neighbouring bucket.
std::int64_t RelativeBuckets::of(std::int64_t distance) const {
  const std::int64_t shared = two_way ? count / 2 : count, exact = shared / 2;
  require(exact > 0 && most > exact, "relative buckets: want 4 or more, and more distances");
  const std::int64_t begin = two_way && distance > 0 ? shared : 0;
  const std::int64_t apart = two_way ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  if (apart < exact) return begin + apart;
  const auto range =
      static_cast<float>(std::log(static_cast<double>(most) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(apart) / static_cast<float>(exact)) / range;
  const auto further = static_cast<std::int64_t>(share * static_cast<float>(shared - exact));
  return begin + std::min(exact + further, shared - 1);
}

}  // namespace hybrid_trainer
