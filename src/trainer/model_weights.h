#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/weight_average.h"
#include "hybrid_trainer/memory/weight_snapshot.h"
#include "hybrid_trainer/phases/trainable.h"
#include "src/trainer/phase_position.h"
#include "src/trainer/predict_offload.h"

namespace hybrid_trainer {

/// A model's weights as predictions compute with them: this rank's parts, where ranks have parts.
class ModelWeights final : public WeightSpace {
 public:
  /// All must outlive it.
  ModelWeights(TrainingStep& step, PredictOffload& offload, WeightAverage& average,
               MemoryPlaces& places);
  std::vector<Tensor> empty_like_weights(MemoryKind kind) override;
  std::vector<Tensor> empty_directions() override;
  void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                       const std::vector<float>& factors) override;
  void copy_weights(const std::vector<Tensor>& to) override;
  void add_weights(const std::vector<Tensor>& to, float kept, float added) override;
  double wait_for_dot(const Tensor& x, const Tensor& y) override;
  void move_along(const std::vector<Tensor>& directions, double length) override;
  double wait_for_slope(const std::vector<Tensor>& directions) override;
  void write_momentum_directions(const std::vector<Tensor>& directions) override;
  void follow(const std::vector<Tensor>& directions, double length) override;

 private:
  std::vector<Tensor> empty_tensors(MemoryKind kind, const Stream& where) const;
  TrainingStep& step_;
  PredictOffload& offload_;
  WeightAverage& average_;
  MemoryPlaces& places_;
  const Stream& stream_;
};

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
