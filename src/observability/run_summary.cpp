#include "hybrid_trainer/observability/run_summary.h"

#include <algorithm>
#include <type_traits>

namespace hybrid_trainer {
namespace {

/// Adds a step's field to a sum of steps.
struct FoldedField {
  template <class Value>
  void operator()(const char*, const StepFieldUse& use, Value& sum, const Value& next) const {
    if constexpr (std::is_arithmetic_v<Value>) {
      sum = use.fold == Fold::kSum    ? static_cast<Value>(sum + next)
            : use.fold == Fold::kMost ? std::max(sum, next)
                                      : next;
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (next) sum = use.fold == Fold::kSum ? sum.value_or(0) + *next : *next;
    } else if constexpr (std::is_same_v<Value, std::array<std::size_t, kMemoryKinds>>) {
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
        (*this)("", use, sum[kind], next[kind]);
    } else {
      sum = next;
    }
  }
};

}  // namespace

void RunSummary::add(const StepRecord& record) {
  steps = std::max(steps + 1, record.step);  // records may be lost, steps are not
  const Phase last_phase = sum.phase;
  StepRecord::visit_fields(FoldedField(), sum, record);
  counts_examples = record.counts_examples();
  final_train_loss = record.loss;
  if (record.validation_loss) final_validation_loss = record.validation_loss;
  if (record.average_validation_loss)
    final_average_validation_loss = record.average_validation_loss;
  if (record.lag) add_late_step(record);
  if (record.rate_factor) add_probe(record);
  ++count(record.recovery);
  PhaseUse& left = phase(last_phase);
  if (left.steps > 0) left.peak_bytes = std::max(left.peak_bytes, record.border_peak_bytes);
  PhaseUse& use = phase(record.phase);
  ++use.steps;
  StepRecord::visit_fields(FoldedField(), use.sum, record);
  use.cost += record.cost;
  use.peak_bytes = std::max(use.peak_bytes, record.device_memory.peak_total);
}

double RunSummary::prediction_cost() const {
  double cost = learning_rate_finder ? -learning_rate_finder->cost : 0;
  for (const PhaseUse& use : phases) cost += use.cost - static_cast<double>(use.steps);
  return cost;
}

void RunSummary::add_late_step(const StepRecord& record) {
  if (!speculation) speculation.emplace();
  if (*record.lag > 0) ++speculation->steps;
  if (record.prediction_error) {
    ++speculation->errors;
    speculation->error_sum += *record.prediction_error;
  }
  if (record.phase != Phase::kPredict) return;
  std::size_t bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::kOptimizerState, MemoryKind::kMasterWeights, MemoryKind::kPredictor})
    bytes += record.device_memory.peak[static_cast<std::size_t>(kind)];
  speculation->device_bytes = std::max(speculation->device_bytes, bytes);
}

void RunSummary::add_probe(const StepRecord& record) {
  if (!learning_rate_finder) learning_rate_finder.emplace();
  RateFinder& finder = *learning_rate_finder;
  finder.factor = *record.rate_factor;
  finder.learning_rate = std::max(finder.learning_rate, record.learning_rate);
  if (!record.probe_position) return;
  ++finder.probes;
  finder.cost += record.probe_cost.value_or(0);
}

}  // namespace hybrid_trainer
