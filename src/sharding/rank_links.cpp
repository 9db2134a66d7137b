#include "src/sharding/rank_links.h"

#include "hybrid_trainer/distributed/background_communicator.h"
#include "hybrid_trainer/distributed/side_stream_communicator.h"

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

RankLinks::RankLinks(Communicator& ranks, const DistributedConfig& config, Device device) {
  Communicator& link = through_link(ranks, config, link_);
  if (config.overlap && device.type == DeviceType::kCuda) {
    beside_ = std::make_unique<SideStreamCommunicator>(link);
  } else {
    beside_ = std::make_unique<BackgroundCommunicator>(link, config.overlap);
  }
}

}  // namespace hybrid_trainer
