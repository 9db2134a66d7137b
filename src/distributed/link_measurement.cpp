#include "hybrid_trainer/distributed/link_measurement.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/clock.h"

namespace hybrid_trainer {
namespace {

constexpr int kBarriers = 101, kRounds = 7;
constexpr std::int64_t kBytesToEach = 8 << 20;

template <class Call>
std::vector<double> seconds_of(int times, const Call& call) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    call();
    seconds.push_back(seconds_since(begin));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

double largest_of_all(double mine, Communicator& ranks) {
  double largest = mine;
  for (const std::string& bytes :
       ranks.host_gather({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    double theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    largest = std::max(largest, theirs);
  }
  return largest;
}

}  // namespace

LinkSpeed measure_link(Communicator& ranks, const Stream& stream) {
  require(ranks.size() > 1, "a link is between two ranks or more");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), kBytesToEach);
  counts[static_cast<std::size_t>(ranks.rank())] = 0;
  const std::int64_t bytes = kBytesToEach * (ranks.size() - 1);
  const Tensor sent = Tensor::zeros({bytes}, DType::kU8, MemoryKind::kWorkspace, stream);
  const Tensor received = Tensor::zeros({bytes}, DType::kU8, MemoryKind::kWorkspace, stream);
  ranks.barrier();
  const auto barriers = seconds_of(kBarriers, [&] { ranks.barrier(); });
  const auto rounds =
      seconds_of(kRounds, [&] { ranks.all_to_all(received, counts, sent, counts, stream); });
  const double best = largest_of_all(rounds.front(), ranks);
  return {.bytes_per_second = static_cast<double>(bytes) / best,
          .latency =
              std::chrono::duration<double>(largest_of_all(barriers[barriers.size() / 2], ranks))};
}

}  // namespace hybrid_trainer
