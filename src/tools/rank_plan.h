#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>

#include "hybrid_trainer/planning/memory_simulation.h"

namespace hybrid_trainer {

/// Memory of a CUDA device besides the run's own.
struct CudaShare {
  std::size_t libraries = 0, context = 0;
  std::size_t sum() const { return libraries + context; }
};

/// Prints what a run takes of its budget; on CUDA with CUDA's share, as one sum.
void print_device_memory(const char* name, std::size_t bytes,
                         const std::optional<std::size_t>& budget,
                         const std::optional<CudaShare>& cuda);
/// Adds the same to a JSON object.
void add_device_memory(boost::json::object& answer, std::size_t bytes,
                       const std::optional<CudaShare>& cuda);

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

/// By phase, those that a run comes into.
boost::json::object phases_of(const MemoryNeed& need);
void print_phases(const MemoryNeed& need);

}  // namespace hybrid_trainer
