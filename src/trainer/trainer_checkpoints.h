#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/distributed/communicator.h"
#include "src/files/checkpoint.h"
#include "src/trainer/model_trainable.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

/// A checkpoint knows no ranks: what it holds of a weight is whole. What the state has of a weight
/// is known by its name, "optimizer.WEIGHT.m", or by the weight's place among all, "phases.….3".

/// The ranks as they save and read checkpoints together; null: alone.
CheckpointRanks checkpoint_ranks(Communicator* ranks);

/// What a rank writes of its state, as views of it: its own parts of weights, and of what is the
/// same on all ranks an equal share. `parts`: null where all of it is the same.
CheckpointShare own_share(State state, const WeightParts* parts, const CheckpointRanks& ranks);

/// Says which elements of a checkpoint's tensor are this rank's own, and the shape that they have
/// here. `parts` must outlive it.
std::function<WantedElements(const std::string&, const StoredTensor&)> own_elements(
    const WeightParts& parts);

/// The best checkpoint that a saved state names; none where there is none.
std::optional<BestCheckpoint> best_in(const State& state);

/// Saves a trainer's state, and brings it back: to resume a run, or to go back after a failed step.
class TrainerCheckpoints {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// All must outlive it; `ranks` may be null. `tell` receives each line; `warn` those that ask for
  /// attention.
  TrainerCheckpoints(const HybridTrainerConfig& config, TrainerProgress& progress,
                     ModelTrainable& trainable, PhaseMachine& machine, Communicator* ranks,
                     Tell tell, Tell warn);
  /// See HybridTrainer::save; nothing is pending between ranks.
  std::string save(const std::string& folder, CheckpointUse use);
  /// See HybridTrainer::resume.
  bool resume(const std::string& folder);
  /// See HybridTrainer::roll_back.
  void roll_back(const std::string& folder, const StepRecord& failed);

 private:
  std::string save_share(const std::string& folder);
  void forget_lost_best(const std::string& folder);
  State state();
  State own_state_of(const CheckpointInfo& checkpoint) const;
  void load(const State& state);
  void check_config_of(const State& state) const;
  std::optional<CheckpointInfo> newest_before(const std::string& folder, std::int64_t before) const;
  std::optional<CheckpointInfo> target_of(const std::string& folder, std::int64_t failed) const;

  const HybridTrainerConfig& config_;
  TrainerProgress& progress_;
  ModelTrainable& trainable_;
  PhaseMachine& machine_;
  Communicator* const ranks_;
  const Tell tell_, warn_;
};

}  // namespace hybrid_trainer
