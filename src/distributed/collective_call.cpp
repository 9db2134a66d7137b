#include "src/distributed/collective_call.h"

#include <algorithm>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {
namespace {

const char* name_of_operation(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kGatherParts:
      return "gather_parts";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kHostGather:
      return "host_gather";
    case Operation::kSend:
      return "send";
  }
  return "?";
}

std::string detail_of(const CollectiveCall& call) {
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter: {
      constexpr const char* kNames[] = {" (sum)", " (min)", " (max)"};
      return kNames[std::clamp<std::int64_t>(call.detail, 0, 2)];
    }
    case Operation::kBroadcast:
      return concat(" from rank ", call.detail);
    default:
      return "";
  }
}

}  // namespace

std::string text_of(const CollectiveCall& call) {
  std::string text = name_of_operation(call.operation);
  if (call.operation != Operation::kBarrier && call.operation != Operation::kHostGather)
    text += concat(" of ", call.elements, " ", name_of(call.dtype), detail_of(call));
  if (call.sequence > 0) text += concat(", its call ", call.sequence);
  return text;
}

void check_same(const std::vector<CollectiveCall>& calls) {
  const auto differs = [&](const CollectiveCall& call) { return !(call == calls.front()); };
  if (std::none_of(calls.begin(), calls.end(), differs)) return;
  std::vector<std::string> parts;
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    parts.push_back(concat("rank ", rank, " called ", text_of(calls[rank])));
  throw CollectiveMismatch("the ranks do not call the same: " + join(parts, "; "));
}

void check_expected(const CollectiveCall& expected, int rank, const CollectiveCall& got, int from) {
  if (expected == got) return;
  throw CollectiveMismatch(concat("the ranks do not call the same: rank ", rank, " waits for ",
                                  text_of(expected), " from rank ", from, ", which called ",
                                  text_of(got)));
}

}  // namespace hybrid_trainer
