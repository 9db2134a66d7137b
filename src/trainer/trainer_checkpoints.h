#pragma once

#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/files/checkpoint.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

/// Checkpoints contain whole weights and state tensors for any number of ranks. The name of a state
/// tensor contains its weight's name ("optimizer.WEIGHT.m") or index ("phases.….3").

/// Returns the ranks that save and load together. Null `ranks` means a single process.
CheckpointRanks checkpoint_ranks(Communicator* ranks);

/// Returns views of the part of the state that this rank writes: its shards of weights, and an
/// equal share of the replicated state. `parts`: shards, or null if all state is replicated.
CheckpointShare own_share(State state, const WeightParts* parts, const CheckpointRanks& ranks);

/// Returns a function that selects this rank's elements of a saved tensor. `parts` must outlive the
/// function.
std::function<WantedElements(const std::string&, const StoredTensor&)> own_elements(
    const WeightParts& parts);

std::optional<BestCheckpoint> best_in(const State& state);

/// Saves and loads a trainer's state, to resume a run or to roll back after a failed step.
class TrainerCheckpoints {
 public:
  using MessageCallback = std::function<void(const std::string&)>;
  /// `ranks` may be null. `report` receives messages, and `warn` warnings.
  TrainerCheckpoints(const HybridTrainerConfig& config, TrainerProgress& progress,
                     ModelTrainable& trainable, PhaseMachine& machine, Communicator* ranks,
                     MessageCallback report, MessageCallback warn);
  /// See HybridTrainer::save. No messages between ranks may be pending.
  std::string save(const std::string& folder, CheckpointUse use);
  bool resume(const std::string& folder);
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
  const MessageCallback report_, warn_;
};

}  // namespace hybrid_trainer
