#include "src/config/applied_parts.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Those of memory.device_map that parts stand for.
std::string places_of(const std::vector<PartConfig>& parts) {
  std::string text;
  for (const PartConfig& part : parts)
    if (part.place) text += concat(text.empty() ? "" : ",", part.pattern, "=", *part.place);
  return text;
}

}  // namespace

OptimizerGroupConfig group_of(const PartConfig& part) {
  return {.match = part.pattern,
          .name = part.optimizer,
          .learning_rate = part.learning_rate,
          .weight_decay = part.weight_decay,
          .state_bits = part.state_bits};
}

HybridTrainerConfig with_applied_parts(HybridTrainerConfig config) {
  const std::string places = places_of(config.parts);
  std::string& map = config.memory.device_map;
  const bool is_there = map == places || map.starts_with(places + ",");
  if (!is_there && !places.empty() && map != "auto")  // which is refused beside places
    map = map.empty() ? places : concat(places, ",", map);
  auto& groups = config.optimizer.groups;
  for (const PartConfig& part : config.parts) {
    const bool has_group =
        std::ranges::count(groups, part.pattern, &OptimizerGroupConfig::match) > 0;
    if (part.has_optimizer() && !has_group) groups.push_back(group_of(part));
  }
  return config;
}

}  // namespace hybrid_trainer
