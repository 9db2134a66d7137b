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
  explicit ExpertWatch(Tell warn) : warn_(std::move(warn)) {}
  /// Of the steps since the last call, whose work is done; the counts begin anew. Empty where the model
  /// has no routers, or they counted nothing.
  ExpertLoads read(LossModel& model, const Stream& stream);
  /// Since the last call, which share of the pairs of a token and its expert exists only because the
  /// routers have changed since Predict began; absent where nothing counts it.
  static std::optional<double> read_flips(LossModel& model, const Stream& stream);

 private:
  void add_layer(ExpertLoads& loads, RoutingCount& count, std::size_t layer, const Stream& stream);
  void warn_of_dead(const ExpertLoads& loads);
  Tell warn_;
  std::vector<std::vector<std::int64_t>> idle_;  // steps without a token, by layer and expert
  std::int64_t told_ = 0;                        // dead experts that were told of
};

}  // namespace hybrid_trainer
