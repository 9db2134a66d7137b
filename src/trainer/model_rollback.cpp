#include "src/trainer/model_rollback.h"

#include "src/trainer/saved_weights.h"

namespace hybrid_trainer {
namespace {

std::string snapshot_name(const Parameter& parameter) { return "snapshot." + parameter.name(); }

}  // namespace

ModelRollback::ModelRollback(TrainingStep& step, PhasePosition& position, MemoryPlaces& places)
    : step_(step),
      position_(position),
      places_(places),
      stream_(step.stream()),
      snapshot_(places.overflow().pool()) {}

void ModelRollback::save_snapshot() { snapshot_.take(step_.parameters(), stream_); }

void ModelRollback::restore_snapshot() {
  snapshot_.restore(step_.parameters(), stream_);
  step_.publish_weights();
}

Batch ModelRollback::keep_batch(const Batch& batch) {
  return batch.with([&](const Tensor& part) {
    const Tensor kept = Tensor::empty_like(part, MemoryKind::kData, places_.overflow());
    wait_for_copy(kept, part, stream_);
    return kept;
  });
}

Batch ModelRollback::fetch_batch(const Batch& kept) {
  return kept.with([&](const Tensor& part) { return wait_for_device(part, stream_); });
}

void ModelRollback::save(State& state) const {
  for (std::size_t i = 0; i < snapshot_.copies().size(); ++i)
    state.tensors[snapshot_name(*step_.parameters()[i])] = snapshot_.copies()[i];
}

void ModelRollback::load(const State& state) {
  const std::vector<Parameter*>& parameters = step_.parameters();
  snapshot_.drop();
  if (parameters.empty() || !state.tensors.contains(snapshot_name(*parameters.front()))) return;
  save_snapshot();
  stream_.synchronize();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    copy_saved(snapshot_.copies()[i], state, snapshot_name(*parameters[i]), stream_);
}

}  // namespace hybrid_trainer
