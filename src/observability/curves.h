#pragma once

#include <array>
#include <deque>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Consecutive steps merged into one point of every curve.
struct CurvePoint {
  std::int64_t last_step = 0;
  std::array<std::int64_t, kPhases> steps{};  // number of steps by phase
  std::int64_t finite_losses = 0;
  double loss_sum = 0, loss_low = 0, loss_high = 0;  // sum and range of the finite losses
  double seconds = 0;
  std::int64_t tokens = 0;
  std::array<std::size_t, kMemoryKinds> live{}, peak{};  // maximum over the steps
  std::size_t host = 0;

  explicit CurvePoint(const StepRecord& record);
  void merge(const CurvePoint& next);
  Phase phase() const;  // phase of most of the steps
  std::int64_t step_count() const;
  /// Returns NaN if no loss is finite.
  double mean_loss() const { return loss_sum / static_cast<double>(finite_losses); }
};

struct CurveMark {
  std::int64_t step = 0;
  double value = 0;
};

/// Values at single steps. If there are too many, only every `stride`-th value is kept.
struct CurveMarks {
  std::vector<CurveMark> kept;
  std::int64_t stride = 1;  // every `stride`-th value is kept
  std::int64_t seen = 0;
  void add(std::int64_t step, const std::optional<double>& value);
};

/// Consecutive steps of one phase.
struct PhaseRun {
  Phase phase = Phase::kWarmup;
  std::int64_t first_step = 0, last_step = 0;
};

struct CurveEvent {
  std::int64_t step = 0;
  Phase phase = Phase::kWarmup;
  std::string text;
  Decision decision = Decision::kNone;
  std::optional<double> kept_fraction;
  bool warns = false;
};

/// The curves of a run. Merges adjacent points if there are too many, which limits the memory.
class Curves {
 public:
  static constexpr std::size_t kMaxPoints = 1500;
  static constexpr std::size_t kMaxEvents = 300;

  void add(const StepRecord& record);
  /// Returns one JSON object for report.js; the comment at the top of report.js lists its keys.
  std::string to_json() const;
  const std::vector<CurvePoint>& points() const { return points_; }
  std::int64_t steps_per_point() const { return steps_per_point_; }
  const std::vector<CurveMark>& validation() const { return validation_.kept; }
  const std::deque<CurveEvent>& events() const { return events_; }
  /// Returns the sequences of steps in one phase. They are exact if there are few; otherwise they
  /// are computed from points.
  std::vector<PhaseRun> bands() const;

 private:
  void merge_pairs();
  void add_to_runs(const StepRecord& record);
  std::vector<CurvePoint> points_;
  const char* unit_ = "tokens";  // unit that the last step's record counts
  std::int64_t steps_per_point_ = 1;
  std::vector<PhaseRun> runs_;  // exact, until has_few_runs_ is false
  bool has_few_runs_ = true;
  CurveMarks validation_, predicted_, errors_;
  std::deque<CurveEvent> events_;  // latest events
  std::int64_t all_events_ = 0;
};

}  // namespace hybrid_trainer
