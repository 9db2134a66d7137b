#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/observability/expert_loads.h"

namespace hybrid_trainer {

/// Reads after each step what a model's routers have counted, and tells of experts that get nothing.
class ExpertWatch {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// Replaces sums of one rank by those of all ranks; empty for one rank.
  using Total = std::function<void(std::vector<double>& sums)>;
  explicit ExpertWatch(Tell warn) : warn_(std::move(warn)) {}
  /// Reads and clears what routers have counted since the last call. Empty if the model has no routers,
  /// or they counted nothing. A collective if `total` is one.
  ExpertLoads read(LossModel& model, const Stream& stream, const Total& total = {});
  /// Reads and clears the share of the pairs of a token and its expert that exists only because the
  /// routers have changed since Predict began; absent if no router counts it. A collective likewise.
  static std::optional<double> read_flips(LossModel& model, const Stream& stream,
                                          const Total& total = {});

 private:
  void add_layer(ExpertLoads& loads, const RoutingCount& count, const double* sums,
                 std::size_t layer);
  void warn_of_dead(const ExpertLoads& loads);
  Tell warn_;
  std::vector<std::vector<std::int64_t>> idle_;  // steps without a token, by layer and expert
  std::int64_t told_ = 0;                        // dead experts that were told of
};

}  // namespace hybrid_trainer
