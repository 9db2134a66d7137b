#include "hybrid_trainer/trainer/hybrid_trainer.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/pools.h"
#include "src/trainer/machine_setup.h"
#include "src/trainer/model_trainable.h"
#include "src/trainer/step_recorder.h"
#include "src/trainer/trainer_checkpoints.h"
#include "src/trainer/trainer_messages.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig validated(const HybridTrainerConfig& config) {
  config.validate({});
  return config.with_parts();
}

}  // namespace

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
      progress_(std::make_unique<TrainerProgress>(LossJudge(config_))),
      stretches_(std::make_unique<Stretches>(config_)),
      stream_(stream),
      upload_(std::make_unique<BatchUpload>()),
      trainable_(std::make_unique<ModelTrainable>(model, config_, stream, places,
                                                  messages_->warner(), ranks)),
      machine_(*trainable_, machine_setup(config)) {
  recorder_ =
      std::make_unique<StepRecorder>(config_, *stretches_, places->host().pool(), *trainable_,
                                     ranks, messages_->teller(), messages_->warner());
  checkpoints_ = std::make_unique<TrainerCheckpoints>(
      config_, *progress_, *trainable_, machine_, ranks, messages_->teller(), messages_->warner());
}

HybridTrainer::~HybridTrainer() = default;

const OffloadUse& HybridTrainer::offload_use() const { return trainable_->offload_use(); }

bool HybridTrainer::has_late_updates() const {
  return config_.phases.delays_updates() && progress_->last_phase == Phase::kPredict;
}

SpeculationUse HybridTrainer::speculation_use() const { return trainable_->speculation_use(); }

const PhasePrecision& HybridTrainer::precision() const { return trainable_->precision(); }

BatchShape HybridTrainer::batch_shape() const { return stretches_->at(steps_done()).batch; }

std::int64_t HybridTrainer::steps_done() const { return progress_->steps_done; }

const RollBacks& HybridTrainer::roll_backs() const { return progress_->roll_backs; }

std::int64_t HybridTrainer::last_return_point() const { return progress_->last_return_point(); }

void HybridTrainer::with_average(const std::function<void()>& read_out) {
  trainable_->with_average(read_out);
}

void HybridTrainer::with_exact_weights(const std::function<void()>& use) {
  trainable_->with_exact_weights(use);
}

std::optional<bool> HybridTrainer::late_vote_to_stop(bool asks) {
  return trainable_->vote_to_stop(asks);
}

void HybridTrainer::settle() {
  PhaseOutcome outcome;
  machine_.drain(outcome);
  must_go_back_ |= outcome.recovery == Recovery::kRollBack;
  if (!outcome.event.empty()) messages_->warn(outcome.event);
}

bool HybridTrainer::judges() const { return progress_->judge.is_on(); }

bool HybridTrainer::evaluates(bool due) {
  return progress_->judge.evaluates(due, has_late_updates());
}

bool HybridTrainer::judge(double validation_loss) {
  return progress_->judge.judge(steps_done(), validation_loss);
}

void HybridTrainer::forget_best() { progress_->judge.forget(steps_done()); }

std::optional<BestCheckpoint> HybridTrainer::best() const { return progress_->judge.lowest(); }

bool HybridTrainer::is_out_of_patience() const { return progress_->judge.is_out_of_patience(); }

std::int64_t HybridTrainer::improved_at() const { return progress_->judge.improved_at(); }

void HybridTrainer::on_event(std::function<void(const std::string&)> listener) {
  messages_->on_event(std::move(listener));
}

void HybridTrainer::on_mishap(std::function<void(const std::string&)> listener) {
  messages_->on_mishap(std::move(listener));
}

std::string HybridTrainer::save(const std::string& folder, CheckpointUse use) {
  settle();
  return checkpoints_->save(folder, use);
}

bool HybridTrainer::resume(const std::string& folder) { return checkpoints_->resume(folder); }

void HybridTrainer::roll_back(const std::string& folder, const StepRecord& failed) {
  checkpoints_->roll_back(folder, failed);
  must_go_back_ = false;
  went_back_ = true;
}

StepRecord HybridTrainer::record_of(const PhaseOutcome& outcome, const Batch& batch) {
  must_go_back_ = outcome.recovery == Recovery::kRollBack;
  StepRecord record = recorder_->record(steps_done() + 1, outcome, batch, messages_->warnings());
  if (std::exchange(went_back_, false))
    record.recovery = std::max(record.recovery, Recovery::kRollBack);
  return record;
}

void HybridTrainer::hold_weights(bool holds) {
  holds_weights_ = holds;
  if (!holds) trainable_->send_weights();
}

StepRecord HybridTrainer::step(const Batch& batch) {
  const auto begin = Clock::now();
  trainable_->send_weights();
  const Phase before = progress_->last_phase;
  stream_.pool()->reset_peaks();
  trainable_->set_steps_done(steps_done());
  PhaseOutcome outcome;
  try {
    machine_.step(upload_->to_device(batch, stream_), outcome);
  } catch (const Diverged& error) {
    if (!holds_weights_) trainable_->send_weights();
    throw DivergedStep(error.what(), record_of(outcome, batch));
  }
  trainable_->balance_experts();
  if (!holds_weights_) trainable_->send_weights();
  StepRecord record = record_of(outcome, batch);
  ++progress_->steps_done;
  progress_->last_phase = outcome.phase;
  record.seconds = seconds_since(begin);
  record.tokens_per_second = static_cast<double>(record.tokens) / record.seconds;
  recorder_->tell_outcome(record.step, before, outcome);
  return record;
}

}  // namespace hybrid_trainer
