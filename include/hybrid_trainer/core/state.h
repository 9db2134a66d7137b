#pragma once

#include <map>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Everything that a part of the trainer needs to resume after a restart, by name
/// ("optimizer.step", "phases.steps_in_phase"). Reals are kept bit for bit. A part writes itself
/// with save(State&) and reads itself with load(const State&).
struct State {
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, std::vector<double>> series;
  std::map<std::string, std::string> texts;
  std::map<std::string, Tensor> tensors;

  /// The value of a name. Throws DataError that names what is missing.
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  const std::vector<double>& reals_of(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const Tensor& tensor(const std::string& name) const;
};

/// Names of the batches in a run's state begin with it and a dot: a prediction that waits for its decision
/// has them. They are the same on all ranks.
inline constexpr const char* kSavedBatches = "phases.batch";

}  // namespace hybrid_trainer
