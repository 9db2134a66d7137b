#include "hybrid_trainer/distributed/distributed_config.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string imitated_link_text(const DistributedConfig& config) {
  std::vector<std::string> parts;
  if (config.imitated_link.bytes > 0) parts.push_back(config.imitated_link.text() + " a second");
  if (config.imitated_latency_microseconds > 0)
    parts.push_back(concat(config.imitated_latency_microseconds, " us a call"));
  return join(parts);
}

}  // namespace hybrid_trainer
