#include "hybrid_trainer/trainer/hybrid_trainer.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/trainer/model_trainable.h"
#include "src/trainer/config_changes.h"
#include "src/trainer/stretches.h"

namespace hybrid_trainer {
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

constexpr const char* kConfig = "trainer.config";

const HybridTrainerConfig& validated(const HybridTrainerConfig& config) {
  config.validate({});
  return config;
}

}  // namespace

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPool> host_pool)
    : HybridTrainer(
          model, config, stream,
          std::make_shared<MemoryPlaces>(
              config.memory, stream,
              host_pool ? std::move(host_pool)
                        : make_host_pool(stream.device(), config.memory.host_budget.limit()))) {}

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPlaces> places)
    : config_(validated(config)),
      stretches_(std::make_unique<Stretches>(config_)),
      stream_(stream),
      host_pool_(places->host().pool()),
      monitor_(config.memory.profile, config.device_budget()),
      upload_(std::make_unique<BatchUpload>()),
      trainable_(
          std::make_unique<ModelTrainable>(model, config, stream, std::move(places),
                                           [this](const std::string& text) { tell_mishap(text); })),
      machine_(*trainable_, machine_setup(config)) {}

HybridTrainer::~HybridTrainer() = default;

const OffloadUse& HybridTrainer::offload_use() const { return trainable_->offload_use(); }

bool HybridTrainer::has_late_updates() const {
  return !config_.phases.predicts_backward() && last_phase_ == Phase::kPredict;
}

SpeculationUse HybridTrainer::speculation_use() const { return trainable_->speculation_use(); }

const PhasePrecision& HybridTrainer::precision() const { return trainable_->precision(); }

BatchShape HybridTrainer::batch_shape() const { return stretches_->at(steps_done_).batch; }

void HybridTrainer::with_average(const std::function<void()>& read_out) {
  if (!trainable_->has_average()) return;
  const std::unique_ptr<ModelTrainable, void (*)(ModelTrainable*)> exchanged(
      trainable_.get(), [](ModelTrainable* model) { model->exchange_average(); });
  exchanged->exchange_average();
  read_out();
}

void HybridTrainer::tell(const std::string& text) const {
  if (listener_) listener_(text);
}

void HybridTrainer::tell_mishap(const std::string& text) {
  mishaps_ += (mishaps_.empty() ? "" : "; ") + text;
  if (mishap_listener_) mishap_listener_(text);
  tell(text);
}

/// Tells once of each status worse than the last one told, from warning on, and of a leak.
void HybridTrainer::watch_memory(StepRecord& record) {
  const std::int64_t whole_tokens = stretches_->all().back().batch.sequence_length;
  const std::int64_t examples =  // of the config's length
      config_.stretches.empty() ? record.effective_batch : record.tokens / whole_tokens;
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
    record.event += (record.event.empty() ? "" : "; ") + text;
    tell(concat("step ", record.step, ": ", text));
  }
  if (reading.leaks && !told_leak_) {
    told_leak_ = true;
    tell_mishap(concat("device memory grows with every step of ", name_of(record.phase),
                       ": something is never freed"));
  }
}

/// The first step of each stretch but the first says what steps are made of from there on.
void HybridTrainer::tell_stretch(StepRecord& record) {
  const Stretch& stretch = stretches_->at(record.step - 1);
  if (record.step == 1 || stretch == stretches_->at(record.step - 2)) return;
  const std::string text = concat(text_of(stretch), " a step from here on");
  record.event += (record.event.empty() ? "" : "; ") + text;
  tell(concat("step ", record.step, ": ", text));
}

StepRecord HybridTrainer::step(const Batch& batch) {
  const auto begin = Clock::now();
  const Phase before = last_phase_;
  stream_.pool()->reset_peaks();
  trainable_->set_steps_done(steps_done_);
  StepRecord record;
  const PhaseOutcome outcome = machine_.step(upload_->to_device(batch, stream_));
  record.learning_rate = trainable_->learning_rate();
  record.rate_factor = outcome.rate_factor;
  record.probe_position = outcome.probe_position;
  record.probe_cost = outcome.probe_cost;
  record.step = ++steps_done_;
  record.phase = last_phase_ = outcome.phase;
  record.loss = outcome.loss;
  record.gradient_norm = outcome.gradient_norm;
  record.predicted_loss = outcome.predicted_loss;
  record.confidence = outcome.confidence;
  if (!config_.phases.predicts_backward()) record.lag = outcome.lag;
  record.prediction_error = outcome.prediction_error;
  record.decision = outcome.decision;
  record.predictor = outcome.predictor;
  if (!outcome.predictor.empty()) record.planned_steps = outcome.planned_steps;
  record.advantage = outcome.advantage;
  if (outcome.decision != Decision::kNone) record.kept_fraction = outcome.kept_fraction;
  record.cost = outcome.cost;
  record.event = outcome.event;
  record.tokens = batch.tokens();
  record.effective_batch = batch.size();
  record.micro_batches = trainable_->micro_batches_of(batch);
  record.device_memory = stream_.pool()->use();
  if (const auto border = trainable_->take_border()) record.border_peak_bytes = border->peak_total;
  record.host_memory = host_pool_->use();
  tell_stretch(record);
  watch_memory(record);
  record.warns = outcome.warns || !mishaps_.empty();
  record.seconds = seconds_since(begin);
  record.tokens_per_second = static_cast<double>(record.tokens) / record.seconds;
  if (outcome.phase != before)
    tell(concat("step ", record.step, ": ", name_of(before), " -> ", name_of(outcome.phase)));
  if (!outcome.event.empty()) tell(concat("step ", record.step, ": ", outcome.event));
  if (!mishaps_.empty()) {
    record.event += (record.event.empty() ? "" : "; ") + std::exchange(mishaps_, "");
  }
  return record;
}

std::string HybridTrainer::save(const std::string& folder) {
  try {
    State state;
    trainable_->save(state);
    machine_.save(state);
    for (auto& [name, tensor] : state.tensors) tensor = wait_for_host(tensor, stream_);
    state.integers["trainer.steps_done"] = steps_done_;
    state.integers["trainer.last_phase"] = static_cast<std::int64_t>(last_phase_);
    const std::string config = config_json(config_);
    state.texts[kConfig] = config;
    const SavedCheckpoint saved =
        save_checkpoint(folder, steps_done_, state,
                        {.keep = config_.checkpoint.keep, .config_hash = checksum_of(config)});
    trainable_->release_after_save();
    for (const std::string& warning : saved.warnings) tell_mishap(warning);
    return saved.path;
  } catch (...) {
    trainable_->release_after_save();
    throw;
  }
}

void HybridTrainer::check_config_of(const State& state,
                                    const std::optional<HybridTrainerConfig>& older) const {
  HybridTrainerConfig saved = older.value_or(config_);
  if (state.texts.contains(kConfig)) {
    saved = {};
    read_config_text(saved, state.text(kConfig), "the checkpoint's configuration");
  }
  const ConfigChanges changes = config_changes(saved, config_);
  check_changes(changes);
  for (const std::string& change : changes.told) tell(change);
}

bool HybridTrainer::resume(const std::string& folder,
                           const std::optional<HybridTrainerConfig>& older) {
  const FoundCheckpoint found = find_newest_checkpoint(folder);
  for (const std::string& warning : found.warnings) tell(warning);
  if (!found.checkpoint) return false;
  const Stream host(MemoryPool::create("host"));
  {
    const State state = load_checkpoint(*found.checkpoint, host);
    check_config_of(state, older);
    steps_done_ = state.integer("trainer.steps_done");
    last_phase_ = static_cast<Phase>(state.integer("trainer.last_phase"));
    trainable_->set_steps_done(steps_done_);
    trainable_->load(state);
    machine_.load(state);
  }
  return true;
}

}  // namespace hybrid_trainer
