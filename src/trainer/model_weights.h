#pragma once

#include "hybrid_trainer/memory/weight_average.h"
#include "hybrid_trainer/phases/weight_space.h"
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

}  // namespace hybrid_trainer
