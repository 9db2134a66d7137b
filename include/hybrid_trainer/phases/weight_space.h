#pragma once

#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Weights and directions of their shapes: what a prediction computes with. A list of tensors has one
/// for each weight, f32, in a fixed order.
class WeightSpace {
 public:
  virtual ~WeightSpace() = default;
  /// Tensors that lie as the weights do; not initialized.
  virtual std::vector<Tensor> empty_like_weights(MemoryKind kind) = 0;
  /// Tensors for directions that only the calls below take: they may lie on the host.
  virtual std::vector<Tensor> empty_directions() = 0;
  /// direction = Σ factors·of, each as empty_like_weights or empty_directions makes it; `direction`
  /// may be the first of them.
  virtual void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                               const std::vector<float>& factors) = 0;
  /// to = the f32 masters.
  virtual void copy_weights(const std::vector<Tensor>& to) = 0;
  /// to = kept·to + added·masters, as empty_directions makes them; kept 0 does not read `to`.
  virtual void add_weights(const std::vector<Tensor>& to, float kept, float added) = 0;
  /// Inner product of two tensors that lie as one of the weights does. Blocks.
  virtual double wait_for_dot(const Tensor& x, const Tensor& y) = 0;
  /// weights += length·directions.
  virtual void move_along(const std::vector<Tensor>& directions, double length) = 0;
  /// Inner product of the last measurement's gradient with the directions, over all weights; a
  /// weight without a gradient adds nothing. Blocks.
  virtual double wait_for_slope(const std::vector<Tensor>& directions) = 0;
  /// Writes what the optimizer would do next from its moments alone at the current learning rate.
  /// Needs the optimizer state on the device, so it is never called in Predict.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Tells that the weights have moved by length·directions for good: an average of them follows.
  virtual void follow(const std::vector<Tensor>& directions, double length) = 0;
};

}  // namespace hybrid_trainer
