#include "hybrid_trainer/trainer/hybrid_trainer.h"

#include "memory/memory_monitor.h"
#include "src/core/clock.h"
#include "src/trainer/trainer_checkpoints.h"

namespace hybrid_trainer {

/// Forwards phase changes, decisions and warnings. Stores warnings for the next record.
class TrainerMessages {
 public:
  using Listener = std::function<void(const std::string&)>;
  void listen(Listener on_event, Listener on_warning) {
    on_event_ = std::move(on_event);
    on_warning_ = std::move(on_warning);
  }
  void report(const std::string& text) const {
    if (on_event_) on_event_(text);
  }
  void warn(const std::string& text) {
    warnings_ += (warnings_.empty() ? "" : "; ") + text;
    if (on_warning_) on_warning_(text);
    report(text);
  }
  /// reporter and warner return listeners for the trainer's parts, which this object must outlive.
  Listener reporter() {
    return [this](const std::string& text) { report(text); };
  }
  Listener warner() {
    return [this](const std::string& text) { warn(text); };
  }
  /// Returns the warnings since the last record. The caller must clear them.
  std::string& warnings() { return warnings_; }

 private:
  Listener on_event_, on_warning_;
  std::string warnings_;
};

namespace {

PhaseMachine::Setup machine_setup(const HybridTrainerConfig& config) {
  const PredictAwareMemoryConfig& memory = config.predict_aware_memory;
  return {.phases = config.phases,
          .divergence = config.divergence,
          .restore_lookahead = memory.async_restore ? memory.async_restore_lookahead : 0,
          .steps = config.training.steps,
          .learning_rate_finder = config.learning_rate_finder,
          .ramp_steps = config.schedule.warmup_steps};
}

void add_line(std::string& text, const std::string& line) {
  text += (text.empty() ? "" : "; ") + line;
}

HybridTrainerConfig validated(const HybridTrainerConfig& config) {
  config.validate({});
  return config.with_parts();
}

}  // namespace

class StepRecorder {
 public:
  StepRecorder(const HybridTrainerConfig& config, std::shared_ptr<MemoryPool> host_pool,
               ModelTrainable& trainable, Communicator* ranks, TrainerMessages& messages);
  /// Returns the record of step `step`, without its time. Adds the warnings since the last record
  /// to its event. Statistics cover all ranks, except for statistics of memory, and except in
  /// Predict steps in which ranks do not wait for each other. Collective, except in such steps.
  StepRecord record(std::int64_t step, const PhaseOutcome& outcome, const Batch& batch);
  /// Reports a step's event, and its phase if it differs from `before`.
  void report_outcome(std::int64_t step, Phase before, const PhaseOutcome& outcome) const;

 private:
  ExpertWatch::Total total_over_ranks(Phase phase) const;
  void add_preference(StepRecord& record, const ExpertWatch::Total& total);
  void watch_memory(StepRecord& record);
  void tell_stage(StepRecord& record) const;

  const HybridTrainerConfig& config_;
  const std::shared_ptr<MemoryPool> host_pool_;
  ModelTrainable& trainable_;
  Communicator* const ranks_;
  TrainerMessages& messages_;
  MemoryMonitor monitor_;
  ExpertWatch experts_;
  MemoryStatus reported_status_ = MemoryStatus::kNormal;  // worst reported status
  bool has_reported_leak_ = false;
};

StepRecorder::StepRecorder(const HybridTrainerConfig& config, std::shared_ptr<MemoryPool> host_pool,
                           ModelTrainable& trainable, Communicator* ranks,
                           TrainerMessages& messages)
    : config_(config),
      host_pool_(std::move(host_pool)),
      trainable_(trainable),
      ranks_(ranks),
      messages_(messages),
      monitor_(config.device_budget()),
      experts_(messages.warner()) {}

StepRecord StepRecorder::record(std::int64_t step, const PhaseOutcome& outcome,
                                const Batch& batch) {
  StepRecord record;
  static_cast<StepOutcome&>(record) = outcome;
  record.step = step;
  record.learning_rate = trainable_.learning_rate();
  if (!config_.phases.traits().skips_backward) record.lag = outcome.lag;
  if (!outcome.predictor.empty()) record.planned_steps = outcome.planned_steps;
  if (outcome.decision != Decision::kNone) record.kept_fraction = outcome.kept_fraction;
  if (const LossScale* const scale = trainable_.scales().used_loss_scale()) {
    record.loss_scale = scale->value();
    record.overflows = scale->overflows();
  }
  record.tokens = batch.tokens();
  record.effective_batch = batch.size();
  record.micro_batches = trainable_.micro_batches().of(batch);
  record.device_memory = trainable_.stream().pool()->use();
  if (const auto border = trainable_.take_phase_entry_use())
    record.phase_entry_peak_bytes = border->peak_total;
  record.host_memory = host_pool_->use();
  const ExpertWatch::Total total = total_over_ranks(outcome.phase);
  record.experts = experts_.read(trainable_.model(), trainable_.stream(), total);
  record.routing_flips = ExpertWatch::read_flips(trainable_.model(), trainable_.stream(), total);
  add_preference(record, total);
  tell_stage(record);
  watch_memory(record);
  std::string& warnings = messages_.warnings();
  record.warns |= !warnings.empty();
  if (!warnings.empty()) add_line(record.event, std::exchange(warnings, ""));
  return record;
}

void StepRecorder::report_outcome(std::int64_t step, Phase before,
                                  const PhaseOutcome& outcome) const {
  if (outcome.phase != before)
    messages_.report(concat("step ", step, ": ", name_of(before), " -> ", name_of(outcome.phase)));
  if (!outcome.event.empty()) messages_.report(concat("step ", step, ": ", outcome.event));
}

ExpertWatch::Total StepRecorder::total_over_ranks(Phase phase) const {
  const bool waits = phase != Phase::kPredict || !config_.phases.traits().runs_ahead_of_ranks;
  if (ranks_ == nullptr || ranks_->size() == 1 || !waits) return {};
  return [ranks = ranks_](std::vector<double>& sums) {
    const auto all = gather_numbers<double>(sums, *ranks);
    std::ranges::fill(sums, 0.0);
    for (const std::vector<double>& theirs : all) {
      require(theirs.size() == sums.size(), "ranks must gather the same values of a step");
      std::ranges::transform(sums, theirs, sums.begin(), std::plus<>());
    }
  };
}

/// Adds the means over all pairs of answers in the step's passes to the record.
void StepRecorder::add_preference(StepRecord& record, const ExpertWatch::Total& total) {
  PreferenceLoss* const preference = trainable_.model().preference();
  if (!config_.prefers() || preference == nullptr) return;
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

/// Warns about leaks, and about a memory status of at least kWarning that is worse than before.
void StepRecorder::watch_memory(StepRecord& record) {
  const std::vector<Stage>& all = trainable_.stages().all();
  const std::int64_t examples =  // examples of the config's length
      all.size() == 1 ? record.effective_batch : record.tokens / all.back().batch.sequence_length;
  const MemoryReading reading =
      monitor_.observe(record.phase, record.device_memory,
                       std::max<std::int64_t>(1, examples / record.micro_batches));
  record.recommended_micro_batch = reading.recommended_micro_batch;
  record.memory_status = name_of(reading.status);
  record.memory_share = reading.share;
  record.memory_risk = reading.risk;
  record.memory_leaks = reading.leaks;
  if (reading.status >= MemoryStatus::kWarning && reading.status > reported_status_) {
    reported_status_ = reading.status;
    const std::string text = concat("device memory: ", name_of(reading.status), ", ",
                                    brief(100 * reading.share), " % of its budget");
    add_line(record.event, text);
    messages_.report(concat("step ", record.step, ": ", text));
  }
  if (reading.leaks && !has_reported_leak_) {
    has_reported_leak_ = true;
    messages_.warn(concat("device memory grows with every step of ", name_of(record.phase),
                          ": possible memory leak"));
  }
}

/// Reports the new settings in the first step of each stage except the first.
void StepRecorder::tell_stage(StepRecord& record) const {
  const Stages& stages = trainable_.stages();
  const Stage& stage = stages.at(record.step - 1);
  if (record.step == 1 || stage == stages.at(record.step - 2)) return;
  const std::string text = concat(text_of(stage), " per step from now on");
  add_line(record.event, text);
  messages_.report(concat("step ", record.step, ": ", text));
}

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPool> host_pool,
                             Communicator* ranks)
    : HybridTrainer(
          model, config, stream,
          std::make_shared<MemoryPlaces>(
              config.with_parts().memory, stream,
              host_pool ? std::move(host_pool)
                        : make_host_pool(stream.device(), config.memory.host_budget.limit())),
          ranks) {}

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                             Communicator* ranks)
    : config_(validated(config)),
      messages_(std::make_unique<TrainerMessages>()),
      progress_(LossJudge(config_)),
      stream_(stream),
      upload_(std::make_unique<BatchUpload>()),
      trainable_(std::make_unique<ModelTrainable>(model, config_, stream, places,
                                                  messages_->warner(), ranks)),
      machine_(*trainable_, machine_setup(config)) {
  recorder_ = std::make_unique<StepRecorder>(config_, places->host().pool(), *trainable_, ranks,
                                             *messages_);
  checkpoints_ = std::make_unique<TrainerCheckpoints>(
      config_, progress_, *trainable_, machine_, ranks, messages_->reporter(), messages_->warner());
}

HybridTrainer::~HybridTrainer() = default;

const PhasePrecision& HybridTrainer::precision() const { return trainable_->precision(); }

void HybridTrainer::add_use_to(RunSummary& summary) const {
  summary.predictions = machine_.statistics().predictions;
  const RollBacks& roll_backs = progress_.roll_backs;
  summary.count(Recovery::kRollBack) = roll_backs.count;  // includes discarded records
  summary.rolled_back_steps = roll_backs.steps;
  summary.learning_rate_factor = roll_backs.rate_factor;
  const OffloadUse& offload = trainable_->offload().use();
  summary.offload = {offload.times, offload.bytes, offload.restore_seconds, offload.waited_seconds};
  const std::optional<SpeculationUse> late = trainable_->pending().use();
  if (!summary.speculation || !late) return;
  summary.speculation->waits = late->waits;
  summary.speculation->worker_seconds = late->worker_seconds;
  summary.speculation->wait_seconds = late->wait_seconds;
}

void HybridTrainer::with_exact(const std::function<void()>& callback) {
  trainable_->pending().with_exact(callback);
}

std::optional<bool> HybridTrainer::vote_to_stop(bool requests_stop) {
  return trainable_->pending().vote_to_stop(requests_stop);
}

void HybridTrainer::with_average(const std::function<void()>& callback) {
  trainable_->with_average(callback);
}

void HybridTrainer::drain() {
  PhaseOutcome outcome;
  machine_.drain(outcome);
  progress_.rollback_pending |= outcome.recovery == Recovery::kRollBack;
  if (!outcome.event.empty()) messages_->warn(outcome.event);
}

void HybridTrainer::listen(std::function<void(const std::string&)> on_event,
                           std::function<void(const std::string&)> on_warning) {
  messages_->listen(std::move(on_event), std::move(on_warning));
}

std::string HybridTrainer::save(const std::string& folder, CheckpointUse use) {
  drain();
  return checkpoints_->save(folder, use);
}

bool HybridTrainer::resume(const std::string& folder) { return checkpoints_->resume(folder); }

void HybridTrainer::roll_back(const std::string& folder, const StepRecord& failed) {
  checkpoints_->roll_back(folder, failed);
  progress_.rollback_pending = false;
  rolled_back_ = true;
}

StepRecord HybridTrainer::record_of(const PhaseOutcome& outcome, const Batch& batch) {
  progress_.rollback_pending = outcome.recovery == Recovery::kRollBack;
  StepRecord record = recorder_->record(steps_done() + 1, outcome, batch);
  if (std::exchange(rolled_back_, false))
    record.recovery = std::max(record.recovery, Recovery::kRollBack);
  return record;
}

void HybridTrainer::defer_publishing(bool holds) {
  defers_publishing_ = holds;
  if (!holds) trainable_->send_weights();
}

StepRecord HybridTrainer::step(const Batch& batch) {
  const auto begin = Clock::now();
  trainable_->send_weights();
  const Phase before = progress_.last_phase;
  stream_.pool()->reset_peaks();
  trainable_->set_steps_done(steps_done());
  PhaseOutcome outcome;
  try {
    machine_.step(upload_->to_device(batch, stream_), outcome);
  } catch (const Diverged& error) {
    if (!defers_publishing_) trainable_->send_weights();
    throw DivergedStep(error.what(), record_of(outcome, batch));
  }
  trainable_->balance_experts();
  if (!defers_publishing_) trainable_->send_weights();
  StepRecord record = record_of(outcome, batch);
  ++progress_.steps_done;
  progress_.last_phase = outcome.phase;
  record.seconds = seconds_since(begin);
  record.tokens_per_second = static_cast<double>(record.tokens) / record.seconds;
  recorder_->report_outcome(record.step, before, outcome);
  return record;
}

}  // namespace hybrid_trainer
