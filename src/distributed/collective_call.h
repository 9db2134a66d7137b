#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

enum class Operation : std::uint32_t {
  kAllGather,
  kGatherParts,
  kAllToAll,
  kBarrier,
  kHostGather,
};

/// What a rank calls, as it says to each other rank before data follow.
struct CollectiveCall {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  std::int64_t detail = 0;     // a hash of the counts
  std::int64_t elements = 0;   // of the tensor, or for the rank that is told
  std::uint64_t sequence = 0;  // the how manieth collective it is
  bool operator==(const CollectiveCall&) const = default;
};

/// "all_gather of 5 f32, its call 7"
std::string text_of(const CollectiveCall& call);

/// Throws CollectiveMismatch, with each rank's call, unless all are equal.
void check_same(const std::vector<CollectiveCall>& calls);

/// Throws CollectiveMismatch where what `from` called is not what `rank` waits for.
void check_expected(const CollectiveCall& expected, int rank, const CollectiveCall& got, int from);

}  // namespace hybrid_trainer
