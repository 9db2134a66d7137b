#include "src/distributed/communicator.h"

#include <algorithm>
#include <numeric>

namespace hybrid_trainer {

Shard shard_of(std::int64_t elements, int rank, int ranks) {
  require(elements >= 0 && rank >= 0 && rank < ranks, "a shard must belong to one of the ranks");
  const std::int64_t each = (elements + ranks - 1) / ranks;
  return {std::min(elements, rank * each), std::min(elements, (rank + 1) * each)};
}

void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks) {
  const std::int64_t wanted = shard_of(values.elements(), rank, ranks).elements();
  const bool fits = shard.elements() == wanted && (wanted == 0 || shard.dtype() == values.dtype());
  if (fits) return;
  throw ShapeMismatch(concat("rank ", rank, " of ", ranks, " needs a shard of ", wanted, " ",
                             name_of(values.dtype()), " from a tensor of ", values.elements(),
                             ", got ", shard.elements(), " ", name_of(shard.dtype())));
}

void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool good = counts.size() == static_cast<std::size_t>(ranks) &&
                    std::none_of(counts.begin(), counts.end(), [](auto n) { return n < 0; }) &&
                    all <= tensor.elements();
  if (good) return;
  throw ShapeMismatch(concat("a collective needs ", ranks, " counts with a sum of at most ",
                             tensor.elements(), ", got ", counts.size(), " counts with the sum ",
                             all));
}

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
    if (all[rank].version != all[0].version)
      throw DeviceError(concat(name(rank), " has NCCL ", all[rank].version, ", ", name(0), " has ",
                               all[0].version, "; install the same version on all hosts"));
    for (std::size_t other = 0; other < rank; ++other) {
      if (all[other].device != all[rank].device) continue;
      throw DeviceError(concat(name(other), " and ", name(rank), " have the same device ",
                               all[rank].device,
                               ", but NCCL needs a separate device for each rank; start at most "
                               "one rank per CUDA device (`hybrid doctor` lists the devices)"));
    }
  }
}

}  // namespace hybrid_trainer
