#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/trainer/loss_judge.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

/// How far a trainer has come.
struct TrainerProgress {
  explicit TrainerProgress(LossJudge of_config) : judge(std::move(of_config)) {}
  LossJudge judge;
  std::int64_t steps_done = 0;
  Phase last_phase = Phase::kWarmup;
  RollBacks roll_backs{};
  std::vector<std::int64_t> return_points{};  // checkpoints to go back to, by step, oldest first
  /// The newest of them; 0 where there is none.
  std::int64_t last_return_point() const {
    return return_points.empty() ? 0 : return_points.back();
  }
};

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
