#pragma once

#include <functional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/trainer/memory_plan.h"

namespace hybrid_trainer {

/// One thing that a plan may choose, with its values from the fastest to the one that takes least.
struct Dimension {
  std::vector<std::string> values;
  std::function<void(HybridTrainerConfig& config, const std::string& value)> set;
  /// Position of the config's own value or, for one in between, of the next that takes less.
  std::size_t first = 0;
  /// Whether each value takes less of the device than the one before, whatever the others are.
  bool saves_always = true;
};

/// What a plan may choose; `with_files`: files are places too. Values that the configuration cannot have,
/// such as fewer bits of an optimizer that has no form in them, are left out.
std::vector<Dimension> dimensions_of(const HybridTrainerConfig& config, bool with_files,
                                     const ModelRegistry& registry);

/// The keys in which two configs differ that a plan may set.
std::vector<PlannedOption> changed_options(const HybridTrainerConfig& from,
                                           const HybridTrainerConfig& to);

}  // namespace hybrid_trainer
