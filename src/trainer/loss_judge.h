#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
