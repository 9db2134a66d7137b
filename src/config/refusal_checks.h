#pragma once

#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/phases/refusal.h"

namespace hybrid_trainer {

/// Adds "KEY: got VALUE, but WHY (with CONTEXT); want WANTED" for each value that a row refuses.
/// `known` are values beside the configuration's own.
void collect_refusals(const std::vector<Refusal>& rows, const HybridTrainerConfig& config,
                      const std::string& context, std::vector<std::string>& found,
                      const std::map<std::string, std::string>& known = {});

}  // namespace hybrid_trainer
