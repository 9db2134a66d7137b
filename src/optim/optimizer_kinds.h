#pragma once

#include <span>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

class UpdatePredictor;
struct PredictedUpdates;

/// Elements of a parameter that are updated together: it may be cut between two such units, with the
/// bits of an update of the whole.
enum class UpdateUnit { kElement, kBlock, kWhole };

/// An optimizer, all that the rest of the program knows of it.
struct OptimizerKind {
  const char* name;
  /// For `hybrid config`: the bytes of state that a parameter takes, and what is special about it.
  const char* about;
  std::unique_ptr<Optimizer> (*make)(const OptimizerConfig& config,
                                     std::vector<Parameter*> parameters, const Stream& stream,
                                     const StateHome& home);
  /// Which of betas, epsilon, momentum and orthogonalization_… it reads.
  std::vector<std::string> keys{};
  bool has_8_bits = false;  // OptimizerConfig::state_bits
  UpdateUnit unit = UpdateUnit::kElement;
  /// Of a matrix; null where there are none. See update_flops.
  double (*flops)(const OptimizerConfig& config, const Parameter& matrix,
                  const Stream& stream) = nullptr;
  /// Null where its updates cannot be predicted while they are under way.
  std::unique_ptr<UpdatePredictor> (*predictor)(const PredictedUpdates& updates) = nullptr;
  /// It takes tensors of two dimensions, and the optimizer of this name the rest; null: it takes all.
  const char* rest = nullptr;
};

/// All that there are: to add one, add its files and its row.
std::span<const OptimizerKind> optimizer_kinds();

/// See make_optimizer.
std::unique_ptr<Optimizer> make_optimizer_of(std::span<const OptimizerKind> kinds,
                                             const OptimizerConfig& config,
                                             std::vector<Parameter*> parameters,
                                             const Stream& stream, const StateHome& home);

}  // namespace hybrid_trainer
