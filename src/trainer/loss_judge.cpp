
#include "src/core/narrow.h"
#include "src/trainer/trainer_checkpoints.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kBestSteps = "trainer.best.steps";
constexpr const char* kBestLosses = "trainer.best.losses";
constexpr const char* kReturnPointsOfBest = "trainer.best.return_points";
constexpr const char* kBestOfReturnPoints = "trainer.best.of_return_points";
constexpr const char* kImprovedLoss = "trainer.patience.loss";
constexpr const char* kImprovedAt = "trainer.patience.step";
constexpr const char* kStaleEvaluations = "trainer.patience.waited";
constexpr const char* kEvaluationDue = "trainer.evaluation_owed";

std::vector<BestCheckpoint> best_list_in(const State& state) {
  std::vector<BestCheckpoint> best;
  const auto steps = state.series.find(kBestSteps);
  if (steps == state.series.end()) return best;
  const std::vector<double>& losses = state.reals_of(kBestLosses);
  for (std::size_t i = 0; i < std::min(steps->second.size(), losses.size()); ++i)
    best.push_back({narrow<std::int64_t>(steps->second[i], kBestSteps), losses[i]});
  return best;
}

}  // namespace

LossJudge::LossJudge(const HybridTrainerConfig& config)
    : keep_(config.checkpoint.keep_best),
      patience_(config.training.patience),
      min_improvement_(config.training.min_improvement) {}

bool LossJudge::evaluates(bool due, bool are_predicted) {
  if (!is_on()) return due;
  evaluation_due_ = evaluation_due_ || due;
  return !are_predicted && std::exchange(evaluation_due_, false);
}

bool LossJudge::judge(std::int64_t step, double loss) {
  if (patience_ > 0) {
    const bool improves = loss < improved_loss_ - min_improvement_;
    stale_evaluations_ = improves ? 0 : stale_evaluations_ + 1;
    if (improves) {
      improved_loss_ = loss;
      improved_at_ = step;
    }
  }
  const auto after = std::ranges::find_if(
      best_, [&](const BestCheckpoint& one) { return loss < one.validation_loss; });
  if (after - best_.begin() >= keep_) return false;
  best_.insert(after, {step, loss});
  if (std::ssize(best_) > keep_) best_.resize(static_cast<std::size_t>(keep_));
  return true;
}

void LossJudge::forget(std::int64_t step) {
  std::erase_if(best_, [&](const BestCheckpoint& one) { return one.step == step; });
}

bool LossJudge::keep_only(const std::vector<std::int64_t>& steps) {
  const auto is_gone = [&](std::int64_t step) { return std::ranges::count(steps, step) == 0; };
  std::erase_if(return_point_bests_, [&](const auto& one) { return is_gone(one.second); });
  return std::erase_if(best_, [&](const BestCheckpoint& one) { return is_gone(one.step); }) > 0;
}

void LossJudge::remember(const std::vector<std::int64_t>& return_points) {
  const std::int64_t newest = return_points.back();
  std::erase_if(return_point_bests_, [&](const auto& one) {
    return one.first == newest || std::ranges::count(return_points, one.first) == 0;
  });
  for (const BestCheckpoint& one : best_) return_point_bests_.emplace_back(newest, one.step);
}

std::vector<std::int64_t> LossJudge::kept() const {
  std::vector<std::int64_t> steps;
  for (const BestCheckpoint& one : best_) steps.push_back(one.step);
  for (const auto& [point, step] : return_point_bests_) steps.push_back(step);
  return steps;
}

void LossJudge::save(State& state) const {
  if (!is_on()) return;
  std::vector<double>&steps = state.series[kBestSteps], &losses = state.series[kBestLosses];
  for (const BestCheckpoint& one : best_) {
    steps.push_back(static_cast<double>(one.step));
    losses.push_back(one.validation_loss);
  }
  std::vector<double>&points = state.series[kReturnPointsOfBest],
  &of_points = state.series[kBestOfReturnPoints];
  for (const auto& [point, step] : return_point_bests_) {
    points.push_back(static_cast<double>(point));
    of_points.push_back(static_cast<double>(step));
  }
  state.reals[kImprovedLoss] = improved_loss_;
  state.integers[kImprovedAt] = improved_at_;
  state.integers[kStaleEvaluations] = stale_evaluations_;
  state.integers[kEvaluationDue] = evaluation_due_ ? 1 : 0;
}

void LossJudge::load(const State& state) {
  best_.clear();
  return_point_bests_.clear();
  improved_loss_ = std::numeric_limits<double>::infinity();
  improved_at_ = stale_evaluations_ = 0;
  evaluation_due_ = false;
  if (!state.integers.contains(kStaleEvaluations)) return;
  best_ = best_list_in(state);
  if (std::ssize(best_) > keep_) best_.resize(static_cast<std::size_t>(keep_));
  const std::vector<double>&points = state.reals_of(kReturnPointsOfBest),
        &of_points = state.reals_of(kBestOfReturnPoints);
  for (std::size_t i = 0; i < std::min(points.size(), of_points.size()); ++i) {
    if (keep_ == 0) break;
    return_point_bests_.emplace_back(narrow<std::int64_t>(points[i], kReturnPointsOfBest),
                                     narrow<std::int64_t>(of_points[i], kBestOfReturnPoints));
  }
  improved_loss_ = state.real(kImprovedLoss);
  improved_at_ = state.integer(kImprovedAt);
  stale_evaluations_ = state.integer(kStaleEvaluations);
  evaluation_due_ = state.integer(kEvaluationDue) != 0;
}

std::optional<BestCheckpoint> best_in(const State& state) {
  const std::vector<BestCheckpoint> best = best_list_in(state);
  return best.empty() ? std::nullopt : std::optional(best.front());
}

}  // namespace hybrid_trainer
