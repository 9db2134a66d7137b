#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>

#include "hybrid_trainer/planning/memory_simulation.h"

namespace hybrid_trainer {

/// What `hybrid plan` is asked about ranks.
struct RankPlan {
  int ranks = 1;
  std::string link;               // bytes a second, or empty
  std::string split;              // as a text
  std::string command = "train";  // that trains so
  bool json = false;
  std::optional<std::size_t> margin{};  // beside what a rank takes, on CUDA
};

/// Says what a rank takes, as `hybrid COMMAND --ranks N` takes it, sends, and a step's time over the
/// link, where one is given. Returns the exit code. Throws UsageError for a link that is none.
int plan_ranks(const RankPlan& asked, const HybridTrainerConfig& config, Device device,
               const std::optional<std::size_t>& budget);

/// By phase, those that a run comes into.
boost::json::object phases_of(const MemoryNeed& need);
void print_phases(const MemoryNeed& need);

}  // namespace hybrid_trainer
