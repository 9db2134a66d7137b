#include "src/trainer/step_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

void add_line(std::string& text, const std::string& line) {
  text += (text.empty() ? "" : "; ") + line;
}

}  // namespace

StepRecorder::StepRecorder(const HybridTrainerConfig& config, const Stretches& stretches,
                           std::shared_ptr<MemoryPool> host_pool, ModelTrainable& trainable,
                           Communicator* ranks, Tell tell, Tell warn)
    : stretches_(stretches),
      host_pool_(std::move(host_pool)),
      trainable_(trainable),
      ranks_(ranks),
      tell_(std::move(tell)),
      warn_(std::move(warn)),
      has_lag_(!config.phases.skips_backward()),
      prefers_(config.prefers()),
      predicts_without_waiting_(config.phases.delays_gradients() || config.phases.trains_locally()),
      monitor_(config.memory.profile, config.device_budget()),
      experts_(warn_) {}

StepRecord StepRecorder::record(std::int64_t step, const PhaseOutcome& outcome, const Batch& batch,
                                std::string& warnings) {
  StepRecord record;
  record.learning_rate = trainable_.learning_rate();
  record.rate_factor = outcome.rate_factor;
  record.probe_position = outcome.probe_position;
  record.probe_cost = outcome.probe_cost;
  record.planning_cost = outcome.planning_cost;
  record.step = step;
  record.phase = outcome.phase;
  record.loss = outcome.loss;
  record.gradient_norm = outcome.gradient_norm;
  record.predicted_loss = outcome.predicted_loss;
  record.confidence = outcome.confidence;
  if (has_lag_) record.lag = outcome.lag;
  record.prediction_error = outcome.prediction_error;
  record.decision = outcome.decision;
  record.predictor = outcome.predictor;
  if (!outcome.predictor.empty()) record.planned_steps = outcome.planned_steps;
  record.advantage = outcome.advantage;
  if (outcome.decision != Decision::kNone) record.kept_fraction = outcome.kept_fraction;
  if (const LossScale* const scale = trainable_.used_loss_scale()) {
    record.loss_scale = scale->value();
    record.overflows = scale->overflows();
  }
  record.recovery = outcome.recovery;
  record.cost = outcome.cost;
  record.event = outcome.event;
  record.tokens = batch.tokens();
  record.effective_batch = batch.size();
  record.micro_batches = trainable_.micro_batches_of(batch);
  record.device_memory = trainable_.stream().pool()->use();
  if (const auto border = trainable_.take_border()) record.border_peak_bytes = border->peak_total;
  record.host_memory = host_pool_->use();
  const ExpertWatch::Total total = total_over_ranks(outcome.phase);
  record.experts = experts_.read(trainable_.model(), trainable_.stream(), total);
  record.routing_flips = ExpertWatch::read_flips(trainable_.model(), trainable_.stream(), total);
  add_preference(record, total);
  tell_stretch(record);
  watch_memory(record);
  record.warns = outcome.warns || !warnings.empty();
  if (!warnings.empty()) add_line(record.event, std::exchange(warnings, ""));
  return record;
}

void StepRecorder::tell_outcome(std::int64_t step, Phase before,
                                const PhaseOutcome& outcome) const {
  if (outcome.phase != before)
    tell_(concat("step ", step, ": ", name_of(before), " -> ", name_of(outcome.phase)));
  if (!outcome.event.empty()) tell_(concat("step ", step, ": ", outcome.event));
}

ExpertWatch::Total StepRecorder::total_over_ranks(Phase phase) const {
  const bool waits = phase != Phase::kPredict || !predicts_without_waiting_;
  if (ranks_ == nullptr || ranks_->size() == 1 || !waits) return {};
  return [ranks = ranks_](std::vector<double>& sums) {
    const std::size_t bytes = sums.size() * sizeof(double);
    const auto all = ranks->host_gather({reinterpret_cast<const char*>(sums.data()), bytes});
    std::ranges::fill(sums, 0.0);
    for (const std::string& theirs : all) {
      require(theirs.size() == bytes, "ranks gather the same figures of a step");
      for (std::size_t i = 0; i < sums.size(); ++i) {
        double value = 0;
        std::memcpy(&value, theirs.data() + i * sizeof value, sizeof value);
        sums[i] += value;
      }
    }
  };
}

/// Means over the pairs of answers that the step's passes have seen.
void StepRecorder::add_preference(StepRecord& record, const ExpertWatch::Total& total) {
  PreferenceLoss* const preference = trainable_.model().preference();
  if (!prefers_ || preference == nullptr) return;
  const PreferenceLoss::Measures own = preference->take(trainable_.stream());
  std::vector<double> sums{own.reward_chosen, own.reward_rejected, own.right, own.pairs};
  if (total) total(sums);
  const double pairs = sums[3];
  if (pairs == 0) return;
  record.reward_chosen = sums[0] / pairs;
  record.reward_rejected = sums[1] / pairs;
  record.reward_margin = *record.reward_chosen - *record.reward_rejected;
  record.preference_accuracy = sums[2] / pairs;
}

/// Tells once of each status worse than the last one told, from warning on, and of a leak.
void StepRecorder::watch_memory(StepRecord& record) {
  const std::vector<Stretch>& all = stretches_.all();
  const std::int64_t examples =  // of the config's length
      all.size() == 1 ? record.effective_batch : record.tokens / all.back().batch.sequence_length;
  const MemoryReading reading =
      monitor_.observe(record.phase, record.device_memory,
                       std::max<std::int64_t>(1, examples / record.micro_batches));
  record.recommended_micro_batch = reading.recommended_micro_batch;
  record.memory_status = name_of(reading.status);
  record.memory_share = reading.share;
  record.memory_risk = reading.risk;
  record.memory_leaks = reading.leaks;
  if (reading.status >= MemoryStatus::kWarning && reading.status > told_status_) {
    told_status_ = reading.status;
    const std::string text = concat("device memory: ", name_of(reading.status), ", ",
                                    brief(100 * reading.share), " % of its budget");
    add_line(record.event, text);
    tell_(concat("step ", record.step, ": ", text));
  }
  if (reading.leaks && !told_leak_) {
    told_leak_ = true;
    warn_(concat("device memory grows with every step of ", name_of(record.phase),
                 ": something is never freed"));
  }
}

/// The first step of each stage but the first says what steps are made of from there on.
void StepRecorder::tell_stretch(StepRecord& record) const {
  const Stretch& stretch = stretches_.at(record.step - 1);
  if (record.step == 1 || stretch == stretches_.at(record.step - 2)) return;
  const std::string text = concat(text_of(stretch), " a step from here on");
  add_line(record.event, text);
  tell_(concat("step ", record.step, ": ", text));
}

}  // namespace hybrid_trainer
