#pragma once

#include <span>

#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

class UpdatePredictor;
struct PredictedUpdates;

/// Unit of a parameter that is updated as a whole. Splits between units do not change updates.
enum class UpdateUnit { kElement, kBlock, kWhole };

struct OptimizerKind {
  const char* name;
  /// Help for `hybrid config`: bytes of state per parameter, and remarks.
  const char* about;
  std::unique_ptr<Optimizer> (*make)(const OptimizerConfig& config,
                                     std::vector<Parameter*> parameters, const Stream& stream,
                                     const StateHome& home);
  /// Keys that the optimizer reads, among betas, epsilon, momentum and orthogonalization_….
  std::vector<std::string> keys{};
  bool has_8_bits = false;  // supports OptimizerConfig::state_bits 8
  UpdateUnit unit = UpdateUnit::kElement;
  /// FLOPs of orthogonalization per update of a matrix. Null if there is none.
  double (*flops)(const OptimizerConfig& config, const Parameter& matrix,
                  const Stream& stream) = nullptr;
  /// Makes a predictor of pending updates. Null if they cannot be predicted.
  std::unique_ptr<UpdatePredictor> (*predictor)(const PredictedUpdates& updates) = nullptr;
  /// Name of the optimizer for tensors that are not 2-D. Null if this optimizer also updates these.
  const char* rest = nullptr;
};

/// Returns all optimizers. To add an optimizer, add its files and its row.
std::span<const OptimizerKind> optimizer_kinds();

std::unique_ptr<Optimizer> make_optimizer_of(std::span<const OptimizerKind> kinds,
                                             const OptimizerConfig& config,
                                             std::vector<Parameter*> parameters,
                                             const Stream& stream, const StateHome& home);

}  // namespace hybrid_trainer
