#pragma once

#include <span>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

class UpdatePredictor;
struct PredictedUpdates;

/// Unit of a parameter that is updated as a whole. Splits between units give bit-identical updates.
enum class UpdateUnit { kElement, kBlock, kWhole };

/// Registry entry of an optimizer.
struct OptimizerKind {
  const char* name;
  /// Help for `hybrid config`: bytes of state per parameter, and remarks.
  const char* about;
  std::unique_ptr<Optimizer> (*make)(const OptimizerConfig& config,
                                     std::vector<Parameter*> parameters, const Stream& stream,
                                     const StateHome& home);
  /// The keys it reads, out of betas, epsilon, momentum and orthogonalization_….
  std::vector<std::string> keys{};
  bool has_8_bits = false;  // with OptimizerConfig::state_bits
  UpdateUnit unit = UpdateUnit::kElement;
  /// Returns floating-point operations of orthogonalization per matrix update; null if none.
  double (*flops)(const OptimizerConfig& config, const Parameter& matrix,
                  const Stream& stream) = nullptr;
  /// Makes a predictor of pending updates; null if they cannot be predicted.
  std::unique_ptr<UpdatePredictor> (*predictor)(const PredictedUpdates& updates) = nullptr;
  /// Name of the optimizer for all tensors that are not 2-D; null if this one updates them too.
  const char* rest = nullptr;
};

/// Returns all optimizers. To add one, add its files and its row.
std::span<const OptimizerKind> optimizer_kinds();

/// Makes an optimizer from the given kinds; see make_optimizer.
std::unique_ptr<Optimizer> make_optimizer_of(std::span<const OptimizerKind> kinds,
                                             const OptimizerConfig& config,
                                             std::vector<Parameter*> parameters,
                                             const Stream& stream, const StateHome& home);

}  // namespace hybrid_trainer
