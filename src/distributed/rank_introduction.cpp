#include "src/distributed/rank_introduction.h"

#include <unistd.h>

#include <sstream>

namespace hybrid_trainer {
namespace {

std::vector<RankIntroduction> exchange_introductions(const RankIntroduction& mine,
                                                     Communicator& ranks) {
  std::vector<RankIntroduction> all;
  for (const std::string& text :
       ranks.host_gather(join({mine.host, mine.device, mine.version, mine.problem}, "\n"))) {
    std::istringstream lines(text);
    RankIntroduction& one = all.emplace_back();
    for (std::string* line : {&one.host, &one.device, &one.version, &one.problem})
      std::getline(lines, *line);
  }
  return all;
}

}  // namespace

void check_introductions(const RankIntroduction& mine, Communicator& ranks) {
  const std::vector<RankIntroduction> all = exchange_introductions(mine, ranks);
  const auto name = [&](std::size_t rank) {
    return concat("rank ", rank, " (", all[rank].host, ")");
  };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].problem.empty()) throw DeviceError(concat(name(rank), ": ", all[rank].problem));
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version != all[0].version) {
      throw DeviceError(concat(name(rank), " has NCCL ", all[rank].version, ", ", name(0), " has ",
                               all[0].version, "; install one version everywhere"));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (all[other].device != all[rank].device) continue;
      throw DeviceError(concat(name(other), " and ", name(rank), " have the same device ",
                               all[rank].device,
                               ", and NCCL wants one for each rank; start no more ranks on a host "
                               "than it has CUDA devices, which `hybrid doctor` lists"));
    }
  }
}

std::string own_host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace hybrid_trainer
