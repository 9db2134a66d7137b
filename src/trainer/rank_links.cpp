#include "src/trainer/rank_links.h"

namespace hybrid_trainer {
namespace {

Communicator& through_link(Communicator& ranks, const DistributedConfig& config,
                           std::optional<ImitatedLink>& link) {
  if (imitated_link_text(config).empty()) return ranks;
  return link.emplace(
      ranks, LinkSpeed{.bytes_per_second = static_cast<double>(config.imitated_link.bytes),
                       .latency = std::chrono::microseconds(config.imitated_latency_microseconds)});
}

}  // namespace

RankLinks::RankLinks(Communicator& ranks, const DistributedConfig& config, Device device)
    : beside_(through_link(ranks, config, link_),
              config.overlap && device.type == DeviceType::kCpu) {}

}  // namespace hybrid_trainer
