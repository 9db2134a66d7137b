#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/weight_snapshot.h"
#include "hybrid_trainer/phases/rollback.h"
#include "src/trainer/phase_position.h"

namespace hybrid_trainer {

/// A model's snapshot and the batches of a prediction, where memory overflows to.
class ModelRollback final : public Rollback {
 public:
  /// All must outlive it.
  ModelRollback(TrainingStep& step, PhasePosition& position, MemoryPlaces& places);
  void save_snapshot() override;
  void restore_snapshot() override;
  void drop_snapshot() override { snapshot_.drop(); }
  Batch keep_batch(const Batch& batch) override;
  Batch fetch_batch(const Batch& kept) override;
  void rewind(std::int64_t steps) override { position_.rewind(steps); }

  /// Saves the snapshot if there is one, as views; and loads it. Throws DataError.
  void save(State& state) const;
  void load(const State& state);

 private:
  TrainingStep& step_;
  PhasePosition& position_;
  MemoryPlaces& places_;
  const Stream& stream_;
  WeightSnapshot snapshot_;
};

}  // namespace hybrid_trainer
