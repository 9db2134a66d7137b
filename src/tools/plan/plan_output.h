#pragma once

#include "hybrid_trainer/trainer/memory_plan.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/trainer/planning/memory_breakdown.h"

namespace hybrid_trainer {

/// Memory of a CUDA device besides the run's own.
struct CudaShare {
  std::size_t libraries = 0, context = 0;
  std::size_t sum() const { return libraries + context; }
};

/// What `hybrid plan` is asked about ranks.
struct RankPlan {
  int ranks = 1;
  std::string link;               // bytes a second, or empty
  std::string command = "train";  // that trains so
  bool json = false;
  std::optional<CudaShare> cuda{};
};

/// Says what a rank takes, as `hybrid COMMAND --ranks N` takes it, sends, and a step's time over the
/// link, where one is given. Returns the exit code. Throws UsageError for a link that is none.
int plan_ranks(const RankPlan& asked, const HybridTrainerConfig& config, Device device,
               const std::optional<std::size_t>& budget);

/// What `hybrid plan` says of a plan for one device.
struct PlanAnswer {
  MemoryPlan plan;
  MemoryBudgets budgets;
  std::string command;             // that trains so
  std::vector<std::string> notes;  // limits of the figures
  std::optional<CudaShare> cuda{};
  bool is_here = true;              // the plan is for a device of this machine
  std::vector<PartMemory> parts{};  // of a network of parts
};

void print(const PlanAnswer& answer);
std::string as_json(const PlanAnswer& answer);

/// Why a run with this plan never predicts; empty where it does, or is not meant to.
std::string why_no_predict_column(const PlanAnswer& answer, Device device);

}  // namespace hybrid_trainer
