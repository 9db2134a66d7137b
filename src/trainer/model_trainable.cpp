#include "hybrid_trainer/trainer/model_trainable.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/memory/away_weight.h"
#include "src/trainer/model_weights.h"
#include "src/trainer/pending_work.h"
#include "src/trainer/phase_position.h"
#include "src/trainer/saved_weights.h"

namespace hybrid_trainer {
namespace {

/// Number of inputs of the largest matrix: the width of this model's products.
std::int64_t typical_width(LossModel& model) {
  std::int64_t width = 64, most = 0;
  model.visit_parameters([&](const Parameter& parameter) {
    if (!is_matrix(parameter.role()) || parameter.elements() <= most) return;
    most = parameter.elements();
    width = parameter.shape()[1];
  });
  return width;
}

}  // namespace

/// What a model under training is made of.
struct ModelTrainable::Parts {
  Parts(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
        MemoryPlaces& places, const Tell& tell, Communicator* ranks)
      : step(model, config, stream, places, ranks),
        micro_batches(config, step.micro_batches()),
        position(config, typical_width(model), step),
        offload(config, places, step, tell),
        rollback(step, position, places),
        average(config.training.average_weights, places.overflow()),
        weights(step, offload, average, places),
        pending(make_pending_work(config, step, tell)) {
    const DeviceMap map(config.memory);
    if (map.farthest() != "device") move_weights(model, map, places);
  }
  TrainingStep step;
  PhaseMicroBatches micro_batches;
  PhasePosition position;
  PredictOffload offload;
  ModelRollback rollback;
  WeightAverage average;
  ModelWeights weights;
  std::unique_ptr<PendingWork> pending;
};

ModelTrainable::ModelTrainable(LossModel& model, const HybridTrainerConfig& config,
                               const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                               Tell tell, Communicator* ranks)
    : model_(model),
      stream_(stream),
      predicts_backward_(config.phases.skips_backward()),
      places_(std::move(places)),
      tell_(std::move(tell)),
      parts_(std::make_unique<Parts>(model, config, stream, *places_, tell_, ranks)) {
  parts_->step.on_halving([this](const Batch& batch, std::int64_t before) {
    tell_(concat("memory is too small for micro-batches of ", batch.size() / before,
                 " examples in ", name_of(parts_->position.phase()), "; there they have ",
                 batch.size() / micro_batches_of(batch), " from here on"));
  });
}

ModelTrainable::~ModelTrainable() = default;

/// Recordings hold the memory of a backward pass, so there is none in Predict, whose few gradients
/// are those of micro-corrections.
void ModelTrainable::enter_phase(Phase phase) {
  parts_->micro_batches.enter(phase);
  parts_->step.optimizer().leave_device(stream_);
  parts_->position.set_phase(phase);
  const bool predicts = phase == Phase::kPredict && predicts_backward_;
  if (predicts) {
    parts_->step.free_gradients();
    parts_->offload.move_state_out();
  } else {
    parts_->offload.end_predict();
  }
  parts_->position.compute(!predicts);
  if (predicts) parts_->offload.move_masters_out();
  if (phase == Phase::kPredict) parts_->pending->enter_predict();
  if (border_) return;  // Full's precision in a step of Correct
  border_ = stream_.pool()->use();
  stream_.pool()->reset_peaks();
}

void ModelTrainable::begin_restore() { parts_->offload.begin_restore(); }

double ModelTrainable::wait_for_loss(const Batch& batch, std::int64_t examples) {
  const Phase phase = parts_->position.phase();
  parts_->offload.begin_return(phase);
  if (phase == Phase::kPredict) parts_->step.free_gradients();
  return parts_->step.wait_for_loss(batch, examples);
}

GradientMeasurement ModelTrainable::wait_for_gradient(const Batch& batch) {
  parts_->offload.begin_return(parts_->position.phase());
  return parts_->step.wait_for_gradient(batch);
}

void ModelTrainable::apply_gradient() {
  parts_->offload.wait_until_restored();
  parts_->step.apply_gradient();
  parts_->pending->observe_update(parts_->step.clip_scale());
  if (parts_->step.parts() != nullptr) parts_->step.publish_weights();
  parts_->average.add(parts_->step.parameters(), stream_);
}

void ModelTrainable::scale_learning_rate(double factor) {
  parts_->step.rates().set_found_factor(factor);
}

bool ModelTrainable::is_one_of_several() const { return parts_->step.is_one_of_several(); }
WeightSpace& ModelTrainable::weights() { return parts_->weights; }
Rollback& ModelTrainable::rollback() { return parts_->rollback; }
MethodSupport ModelTrainable::support() { return parts_->pending->support(); }

void ModelTrainable::set_steps_done(std::int64_t steps) { parts_->position.set_steps_done(steps); }
double ModelTrainable::learning_rate() const { return parts_->step.rates().rate(); }
void ModelTrainable::set_rate_factor(double factor) {
  parts_->step.rates().set_rate_factor(factor);
}
std::int64_t ModelTrainable::micro_batches_of(const Batch& batch) const {
  return parts_->step.micro_batches().of(batch);
}
const PhasePrecision& ModelTrainable::precision() const { return parts_->position.precision(); }

void ModelTrainable::send_weights() { parts_->step.send_weights(); }
const WeightParts* ModelTrainable::parts() const { return parts_->step.parts(); }
void ModelTrainable::with_exact_weights(const std::function<void()>& use) {
  parts_->pending->with_exact(use);
}
std::optional<bool> ModelTrainable::vote_to_stop(bool asks) {
  return parts_->pending->vote_to_stop(asks);
}
bool ModelTrainable::has_average() const { return parts_->average.exists(); }

void ModelTrainable::exchange_average() {
  parts_->average.exchange(parts_->step.parameters(), stream_);
  if (parts_->step.parts() == nullptr) return;
  parts_->step.publish_weights();
  parts_->step.send_weights();
}

const OffloadUse& ModelTrainable::offload_use() const { return parts_->offload.use(); }

SpeculationUse ModelTrainable::speculation_use() const {
  const SpeculativeOptimizer* const speculation = parts_->step.speculation();
  return speculation == nullptr ? SpeculationUse{} : speculation->use();
}

void ModelTrainable::save(State& state) {
  parts_->step.require_whole_update();
  stream_.synchronize();
  parts_->offload.prepare_save(state, parts_->position.phase());
  save_weights(state, parts_->step, parts_->offload.is_dropped());
  parts_->micro_batches.save(state);
  parts_->rollback.save(state);
  parts_->average.save(state, parts_->step.parameters());
  parts_->position.precision().save(state);
  parts_->pending->save(state);
}

void ModelTrainable::release_after_save() { parts_->offload.release_after_save(); }

void ModelTrainable::load(const State& state) {
  parts_->pending->drop();
  parts_->offload.prepare_load(state);
  parts_->rollback.drop_snapshot();
  load_weights(state, parts_->step);
  parts_->average.load(state, parts_->step.parameters(), stream_);
  parts_->position.precision().load(state);
  parts_->micro_batches.load(state, tell_);
  parts_->step.publish_weights();
  parts_->step.send_weights();
  parts_->pending->load(state, precision().of(Phase::kPredict));
  parts_->rollback.load(state);
}

}  // namespace hybrid_trainer
