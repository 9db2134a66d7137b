#pragma once

#include <map>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Named values that components save in a checkpoint ("optimizer.step"). Floating-point values are
/// stored exactly.
struct State {
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, std::vector<double>> series;
  std::map<std::string, std::string> texts;
  std::map<std::string, Tensor> tensors;

  /// Return the value with this name. Throw DataError, naming the value, if it is missing.
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  const std::vector<double>& reals_of(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const Tensor& tensor(const std::string& name) const;
};

/// Name prefix of the batches saved for an undecided prediction. All ranks save the same batches.
inline constexpr const char* kSavedBatches = "phases.batch";

}  // namespace hybrid_trainer
