#include "hybrid_trainer/config/part_config.h"

#include <algorithm>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "src/config/part_checks.h"

namespace hybrid_trainer {
namespace {

/// Those of memory.device_map that parts stand for.
std::string places_of(const std::vector<PartConfig>& parts) {
  std::string text;
  for (const PartConfig& part : parts)
    if (part.place) text += concat(text.empty() ? "" : ",", part.pattern, "=", *part.place);
  return text;
}

OptimizerGroupConfig group_of(const PartConfig& part) {
  return {.match = part.pattern,
          .name = part.optimizer,
          .learning_rate = part.learning_rate,
          .weight_decay = part.weight_decay,
          .state_bits = part.state_bits};
}

/// Whether a group says what the part says, and nothing else.
bool is_of_part(const OptimizerGroupConfig& group, const PartConfig& part) {
  const OptimizerGroupConfig own = group_of(part);
  return group.name == own.name && group.learning_rate == own.learning_rate &&
         group.weight_decay == own.weight_decay && group.state_bits == own.state_bits &&
         !group.betas && !group.epsilon && !group.momentum;
}

}  // namespace

const std::vector<std::string>& part_precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16"};
  return names;
}

const std::vector<std::string>& part_base_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = frozen_base_names();
    std::erase(all, kFileBase);
    return all;
  }();
  return names;
}

bool HybridTrainerConfig::has_adapters() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::is_adapted);
}

bool HybridTrainerConfig::freezes() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::freezes);
}

HybridTrainerConfig HybridTrainerConfig::with_parts() const {
  HybridTrainerConfig config = *this;
  const std::string places = places_of(parts);
  std::string& map = config.memory.device_map;
  const bool is_there = map == places || map.starts_with(places + ",");
  if (!is_there && !places.empty() && map != "auto")  // which is refused beside places
    map = map.empty() ? places : concat(places, ",", map);
  auto& groups = config.optimizer.groups;
  for (const PartConfig& part : parts) {
    const bool has_group =
        std::ranges::count(groups, part.pattern, &OptimizerGroupConfig::match) > 0;
    if (part.has_optimizer() && !has_group) groups.push_back(group_of(part));
  }
  return config;
}

void collect_part_problems(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  const auto refuse = [&](const PartConfig& part, const std::string& what) {
    found.push_back(concat("parts.", part.pattern, what));
  };
  for (std::size_t i = 0; i < config.parts.size(); ++i) {
    const PartConfig& part = config.parts[i];
    const bool says_something =
        part.computes() || part.lora || part.base || part.place || part.has_optimizer();
    if (part.pattern.empty()) refuse(part, ": got no pattern, want names with *, such as video.*");
    if (!says_something)
      refuse(part, ": got {}, which changes nothing; want a key, such as recompute, or no entry");
    if (part.lora == 0 && !config.lora.is_on())
      refuse(part,
             ".lora: got 0, but lora.rank is 0, so the part has no adapters anyway; leave it out");
    if (part.place && part.pattern.find_first_of("=,") != std::string::npos)
      refuse(part, ".place: want a pattern without = and , beside it");
    if (part.place && config.memory.device_map == "auto")
      refuse(part, concat(".place: got ", *part.place,
                          ", but memory.device_map is auto, which chooses the places; want one of "
                          "them"));
    for (const OptimizerGroupConfig& group : config.optimizer.groups)
      if (part.has_optimizer() && group.match == part.pattern && !is_of_part(group, part))
        refuse(part,
               ": optimizer.groups has this pattern too, with other settings; want one of them");
    for (std::size_t k = 0; k < i; ++k)
      if (config.parts[k].pattern == part.pattern) refuse(part, ": the pattern stands there twice");
  }
}

}  // namespace hybrid_trainer
