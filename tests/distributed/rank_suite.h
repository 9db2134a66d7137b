#pragma once

#include <functional>
#include <string>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer::testing {

/// An implementation and its number of ranks.
struct RankCase {
  std::string name;
  std::function<void(const std::function<void(Communicator&)>&)> run;
};

/// All implementations that this process can run.
std::vector<RankCase> rank_cases();

/// f32 values first, first + 1, …
Tensor counted(std::int64_t elements, float first, const Stream& stream);
std::vector<float> floats_of(const Tensor& tensor);
Stream rank_stream();

}  // namespace hybrid_trainer::testing
