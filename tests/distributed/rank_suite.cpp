#include "tests/distributed/rank_suite.h"

#include <numeric>

namespace hybrid_trainer::testing {

Stream rank_stream() { return Stream(MemoryPool::create("rank")); }

Tensor counted(std::int64_t elements, float first, const Stream& stream) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  std::iota(values.begin(), values.end(), first);
  return tensor_of(values, stream);
}

std::vector<float> floats_of(const Tensor& tensor, const Stream& stream) {
  return values_of<float>(tensor, stream);
}

Tensor parted(std::int64_t elements, float first, const Communicator& ranks, const Stream& stream) {
  std::vector<float> all(static_cast<std::size_t>(elements * ranks.size()), -1);
  const auto own = all.begin() + ranks.rank() * elements;
  std::iota(own, own + elements, first);
  return tensor_of(all, stream);
}

void gather(const Tensor& parted, Communicator& ranks, const Stream& stream) {
  const Shard own = shard_of(parted.elements(), ranks.rank(), ranks.size());
  ranks.all_gather(parted, parted.rows(own.first, own.last), stream);
}

std::vector<float> sums_of(const Tensor& parted, const Communicator& ranks, const Stream& stream) {
  const std::vector<float> all = floats_of(parted, stream);
  std::vector<float> sums(all.size() / static_cast<std::size_t>(ranks.size()), 0);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return sums;
}

void broadcast(const Tensor& values, int root, Communicator& ranks, const Stream& stream) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), 0);
  counts[static_cast<std::size_t>(root)] = values.elements();
  ranks.gather_parts(values, counts, stream);
}

}  // namespace hybrid_trainer::testing
