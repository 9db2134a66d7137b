#pragma once

#include "hybrid_trainer/trainer/memory_plan.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/trainer/planning/memory_breakdown.h"

namespace hybrid_trainer {

/// Memory that CUDA itself uses on a device, in addition to the memory of the run.
struct CudaShare {
  std::size_t libraries = 0, context = 0;
  std::size_t sum() const { return libraries + context; }
};

struct RankPlan {
  int ranks = 1;
  std::string link;               // rate of the link in bytes per second, or empty
  std::string command = "train";  // training command
  bool json = false;
  std::optional<CudaShare> cuda{};
};

/// Prints the memory of a rank of `hybrid COMMAND --ranks N` and the bytes that it sends. If a link
/// is given, also prints the time that its transfers take per step. Throws UsageError for an
/// invalid link.
int plan_ranks(const RankPlan& requested, const HybridTrainerConfig& config, Device device,
               const std::optional<std::size_t>& budget);

/// Result of `hybrid plan` for one device.
struct PlanAnswer {
  MemoryPlan plan;
  MemoryBudgets budgets;
  std::string command;             // training command
  std::vector<std::string> notes;  // limits of the estimates
  std::optional<CudaShare> cuda{};
  bool is_here = true;              // whether the device belongs to this machine
  std::vector<PartMemory> parts{};  // memory of each part of a network with parts
};

void print(const PlanAnswer& answer);
std::string as_json(const PlanAnswer& answer);

/// Returns the reason why a run with this plan never predicts. Returns "" if it predicts or if
/// prediction is off.
std::string why_no_predict_column(const PlanAnswer& answer, Device device);

}  // namespace hybrid_trainer
