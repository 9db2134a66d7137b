#include "src/distributed/collective_call.h"

#include <algorithm>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {
namespace {

const char* name_of_operation(Operation operation) {
  switch (operation) {
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kGatherParts:
      return "gather_parts";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kHostGather:
      return "host_gather";
  }
  return "?";
}

}  // namespace

std::string text_of(const CollectiveCall& call) {
  std::string text = name_of_operation(call.operation);
  if (call.operation != Operation::kBarrier && call.operation != Operation::kHostGather)
    text += concat(" of ", call.elements, " ", name_of(call.dtype));
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
