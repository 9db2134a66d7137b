#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

/// Compares the validation losses of a run: says which checkpoints stay because theirs are the lowest
/// (checkpoint.keep_best), and when the run has waited long enough for a lower one
/// (training.patience). Each checkpoint holds it, so that a resumed run goes on with it.
class LossJudge {
 public:
  explicit LossJudge(const HybridTrainerConfig& config);
  bool is_on() const { return keep_ > 0 || patience_ > 0; }
  /// Whether to evaluate after a step, where an evaluation is `due`. While weights are predicted, a
  /// due one is owed and comes after the first step whose weights are not.
  bool evaluates(bool due, bool are_predicted);
  /// Takes the loss after `step`. True where its checkpoint has to be saved, and stays.
  bool judge(std::int64_t step, double loss);
  /// Checkpoints with the lowest losses, lowest first; of equal losses the earlier.
  const std::vector<BestCheckpoint>& best() const { return best_; }
  /// The first of them; none where there is none.
  std::optional<BestCheckpoint> lowest() const {
    return best_.empty() ? std::nullopt : std::optional(best_.front());
  }
  /// Forgets a step that is not saved.
  void forget(std::int64_t step);
  /// Forgets checkpoints of other steps than these. Returns whether there were any.
  bool forget_all_but(const std::vector<std::int64_t>& steps);
  /// Remembers the best of now for the newest of the steps that the run may go back to.
  void remember(const std::vector<std::int64_t>& return_points);
  /// Steps whose checkpoints stay: the best, and those that were the best at return points.
  std::vector<std::int64_t> kept() const;
  bool is_out_of_patience() const { return patience_ > 0 && waited_ >= patience_; }
  /// Step of the last improvement for training.patience.
  std::int64_t improved_at() const { return improved_at_; }
  void save(State& state) const;
  /// A state without judged losses is one in which there were none yet.
  void load(const State& state);

 private:
  std::int64_t keep_, patience_;
  double min_improvement_;
  std::vector<BestCheckpoint> best_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      of_return_points_;  // point, step of a best one
  double improved_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t improved_at_ = 0, waited_ = 0;  // evaluations since then
  bool owed_ = false;
};

/// The best checkpoint that a saved state names; none where there is none.
std::optional<BestCheckpoint> best_in(const State& state);

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
