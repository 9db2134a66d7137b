
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kRoundedState = "optimizer.is_rounded";

/// Returns the rounding of offloaded state. The scales of 8-bit codes take little
/// memory and stay unrounded.
SlotRounding rounding_of(StateRole role) {
  switch (role) {
    case StateRole::kSecondMoment:
    case StateRole::kSharedSecondMoment: return SlotRounding::kNonNegative;
    case StateRole::kCodes:
    case StateRole::kScales: return SlotRounding::kNone;
    case StateRole::kMomentum:
    case StateRole::kSlowMomentum: break;
  }
  return SlotRounding::kSigned;
}

/// Returns the settings for offloading. State that is on the host already stays in place.
PredictAwareMemoryConfig offload_config(const HybridTrainerConfig& config) {
  PredictAwareMemoryConfig memory = config.predict_aware_memory;
  if (config.optimizer_state_home() != "device") memory.offload_strategy = "none";
  return memory;
}

/// Returns null if host memory has a budget, because that is for data without another location.
std::shared_ptr<MemoryPool> staging_of(const HybridTrainerConfig& config,
                                       const MemoryPlaces& places) {
  return config.memory.host_budget.limit() ? nullptr : places.host().pool();
}

}  // namespace

PredictOffload::PredictOffload(const HybridTrainerConfig& config, MemoryPlaces& places,
                               ModelTrainable& model, MessageCallback report)
    : model_(model),
      places_(places),
      report_(std::move(report)),
      strategy_(make_offload_strategy(offload_config(config),
                                      offload_pool(offload_config(config), places),
                                      staging_of(config, places))),
      empties_device_(config.phases.traits().skips_backward &&
                      config.predict_aware_memory.offload_strategy != "none") {}

void PredictOffload::move_state_out() {
  if (strategy_->location() != Location::kResident || is_rounded_) return;
  std::vector<OffloadSlot> slots;
  model_.optimizer().visit_state([&](const StateLabel& label, Tensor& tensor) {
    slots.push_back({label.name, &tensor, rounding_of(label.role)});
  });
  const MoveOutResult result = strategy_->move_out(std::move(slots), model_.stream());
  if (result.problem.empty()) return;
  if (model_.is_distributed() && strategy_->restored() != Restored::kBits) {
    throw Error(ExitCode::kMemory, concat("predict_aware_memory.offload_strategy: ", result.problem,
                                          "; with several ranks, all ranks must round the state in "
                                          "the same way; use cpu_offload, which does not round"));
  }
  report_("Predict keeps the optimizer state on the device: " + result.problem);
}

void PredictOffload::move_masters_out() {
  if (!empties_device_) return;
  const Stream& stream = model_.stream();
  try {
    for (Parameter* parameter : model_.trained_weights())
      parameter->offload_master(places_.host(), stream);
  } catch (const OutOfMemory& error) {
    for (Parameter* parameter : model_.trained_weights()) parameter->restore_master();
    report_(concat("Predict keeps the master weights on the device: ", error.what()));
  }
  stream.pool()->trim();
}

void PredictOffload::end_predict() {
  is_rounded_ = false;
  for (Parameter* parameter : model_.trained_weights()) parameter->restore_master();
}

void PredictOffload::begin_return(Phase phase) {
  strategy_->release_moved_out();
  if (phase != Phase::kPredict) strategy_->begin_return();
}

void PredictOffload::wait_until_restored() {
  if (strategy_->location() == Location::kResident) return;
  strategy_->wait_until_restored();
  if (strategy_->restored() == Restored::kZeros) model_.optimizer().set_steps_taken(0);
}

void PredictOffload::prepare_save(State& state, Phase phase) {
  before_save_ = strategy_->location();
  if (strategy_->restored() != Restored::kZeros || phase != Phase::kPredict) wait_until_restored();
  if (strategy_->restored() != Restored::kRounded) return;
  is_rounded_ = is_rounded_ || before_save_ != Location::kResident;
  state.integers[kRoundedState] = is_rounded_ ? 1 : 0;
}

void PredictOffload::release_after_save() {
  if (before_save_ != Location::kOffloaded && before_save_ != Location::kLeaving) return;
  move_state_out();
  model_.stream().pool()->trim();
}

void PredictOffload::prepare_load(const State& state) {
  wait_until_restored();
  is_rounded_ = state.integers.contains(kRoundedState) && state.integer(kRoundedState) != 0;
}

}  // namespace hybrid_trainer
