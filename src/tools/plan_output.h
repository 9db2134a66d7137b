#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/planning/memory_plan.h"
#include "hybrid_trainer/planning/part_memory.h"
#include "src/tools/rank_plan.h"

namespace hybrid_trainer {

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
