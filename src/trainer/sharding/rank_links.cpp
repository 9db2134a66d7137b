#include "src/trainer/sharding/rank_links.h"

#include <numeric>

namespace hybrid_trainer {

namespace {

Communicator& through_link(Communicator& ranks, const DistributedConfig& config,
                           std::optional<SimulatedLink>& link) {
  if (simulated_link_text(config).empty()) return ranks;
  return link.emplace(
      ranks,
      LinkSpeed{.bytes_per_second = static_cast<double>(config.simulated_link.bytes),
                .latency = std::chrono::microseconds(config.simulated_latency_microseconds)});
}

constexpr double kFading = 0.9;
constexpr double kMinRatio = 1.1;  // smaller differences are noise

}  // namespace

RankLinks::RankLinks(Communicator& ranks, const DistributedConfig& config, Device device) {
  Communicator& link = through_link(ranks, config, link_);
  if (config.overlap && device.type == DeviceType::kCuda) {
    background_ = std::make_unique<SideStreamCommunicator>(link);
  } else {
    background_ = std::make_unique<BackgroundCommunicator>(link, config.overlap);
  }
}

void StragglerDetector::add(const std::vector<double>& seconds) {
  if (std::ranges::any_of(seconds, [](double one) { return one <= 0; })) return;
  recent_.resize(seconds.size());
  all_.resize(seconds.size());
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    recent_[rank] = kFading * recent_[rank] + seconds[rank];
    all_[rank] += seconds[rank];
  }
}

std::optional<SlowRank> StragglerDetector::slowest_of(const std::vector<double>& seconds) {
  if (seconds.size() < 2) return {};
  const auto slowest = std::ranges::max_element(seconds);
  const double others = std::accumulate(seconds.begin(), seconds.end(), -*slowest) /
                        static_cast<double>(seconds.size() - 1);
  if (*slowest < kMinRatio * others) return {};
  return SlowRank{static_cast<int>(slowest - seconds.begin()), *slowest / others};
}

}  // namespace hybrid_trainer
