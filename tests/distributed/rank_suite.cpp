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

}  // namespace hybrid_trainer::testing
