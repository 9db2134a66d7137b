#include "src/config/part_checks.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/config/applied_parts.h"

namespace hybrid_trainer {
namespace {

/// Whether a group says what the part says, and nothing else.
bool is_of_part(const OptimizerGroupConfig& group, const PartConfig& part) {
  const OptimizerGroupConfig own = group_of(part);
  return group.name == own.name && group.learning_rate == own.learning_rate &&
         group.weight_decay == own.weight_decay && group.state_bits == own.state_bits &&
         !group.betas && !group.epsilon && !group.momentum;
}

}  // namespace

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
