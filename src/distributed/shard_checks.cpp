#include "src/distributed/shard_checks.h"

#include <algorithm>
#include <numeric>

namespace hybrid_trainer {

Shard shard_of(std::int64_t elements, int rank, int ranks) {
  require(elements >= 0 && rank >= 0 && rank < ranks, "a shard is of one of the ranks");
  const std::int64_t each = (elements + ranks - 1) / ranks;
  return {std::min(elements, rank * each), std::min(elements, (rank + 1) * each)};
}

void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks) {
  const std::int64_t wanted = shard_of(values.elements(), rank, ranks).elements();
  const bool fits = shard.elements() == wanted && (wanted == 0 || shard.dtype() == values.dtype());
  if (fits) return;
  throw ShapeMismatch(concat("rank ", rank, " of ", ranks, " has ", wanted, " ",
                             name_of(values.dtype()), " of ", values.elements(),
                             ", got a shard of ", shard.elements(), " ", name_of(shard.dtype())));
}

void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool good = counts.size() == static_cast<std::size_t>(ranks) &&
                    std::none_of(counts.begin(), counts.end(), [](auto n) { return n < 0; }) &&
                    all <= tensor.elements();
  if (good) return;
  throw ShapeMismatch(concat("a collective wants ", ranks, " counts of together at most ",
                             tensor.elements(), " elements, got ", counts.size(), " of together ",
                             all));
}

}  // namespace hybrid_trainer
