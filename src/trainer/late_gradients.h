#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/optim/predicted_weights.h"
#include "hybrid_trainer/phases/trainable.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"
#include "src/sharding/late_sum.h"
#include "src/sharding/ordered_gradients.h"

namespace hybrid_trainer {

/// Predict without other ranks: what each rank computed of a step is summed beside the next steps,
/// and makes the exact update `lag` steps late. Which sum meets which step is fixed by counting, so
/// that the bits do not depend on the link, and all decisions are made by sums over all ranks; how
/// far an update was missed is told with the next gradient that is sent. In each step: send,
/// wait_for_oldest, apply where one arrived, predict.
///
/// Where ranks have parts of the weights, each sums, updates and predicts its own, and the predicted
/// ones are brought to where weights are whole, as updated ones are: all ranks compute with the same.
/// The next step wants these, and its gradient's sum only a later one, so a step sends them first.
class LateGradients {
 public:
  /// `leaves` sums the gradients of the weights, of which this rank updates `parts`, or, null, all, by
  /// `optimizer`. All must outlive it.
  LateGradients(const HybridTrainerConfig& config, Optimizer& optimizer, OrderedGradients& leaves,
                WeightParts* parts, const Stream& stream);

  bool are_under_way() const { return !flights_.empty(); }
  /// The sum in `leaves`, of this rank's own micro-batches, gets under way, with parts when weights
  /// have been predicted. `loss`: what they add to the mean over all ranks' micro-batches. Where its
  /// norm is not finite it predicts nothing. Throws OutOfMemory.
  void send(double loss, double norm, double learning_rate);
  /// The gradient of the step `lag` before the one that was sent last, of `all` the oldest, is in
  /// `leaves`. Blocks where it has not arrived.
  std::optional<GradientMeasurement> wait_for_oldest(bool all);
  /// Makes the update by it, or, not `finite`, none.
  LateUpdate apply(bool finite);
  /// The weights are those predicted from the gradients under way. Blocks.
  void predict();
  /// The exact weights are in place; nothing is under way.
  void end();
  /// The same, where something is: it makes no update.
  void drop();
  /// Whoever is called finds the exact weights, whole. A collective where ranks have parts: what it
  /// throws but Diverged, which all meet, may be one rank's alone, and leaves the exact weights there.
  void with_exact(const std::function<void()>& use);
  /// How far the update that was made last was clipped, which those under way are expected to be.
  float expected_clip_scale() const { return clip_scale_; }
  void expect_clip_scale(float scale) { clip_scale_ = scale; }
  /// What this rank says from the next step on, and whether any rank did, `lag` steps before.
  void ask_to_stop(bool asks) { asks_to_stop_ = asks; }
  bool was_asked_to_stop() const { return was_asked_to_stop_; }

 private:
  /// What a rank tells the others of a step.
  enum Word { kLoss, kStops, kMissed, kMoved };
  struct Flight {
    Tensor own;   // this rank's gradient, with parts of its own ones
    Tensor sent;  // what is to be summed, until that begins
    std::vector<double> words{};
    LateSum sum{};
    bool is_finite = true;
    double learning_rate = 0;
    Tensor before{}, predicted{};  // slices of the weights without and with its update
  };
  void begin_sums();
  void measure_prediction(const Flight& arrived);
  void exchange_whole_weights();

  const PhaseConfig config_;
  const double clip_norm_;
  Optimizer& optimizer_;
  OrderedGradients& leaves_;
  WeightParts* parts_;
  const std::vector<Parameter*>& parameters_;  // that this rank updates
  const Stream& stream_;
  PredictedWeights weights_;
  std::deque<Flight> flights_;  // oldest first
  std::optional<Flight> arrived_;
  double arrived_norm_ = 0;
  float clip_scale_ = 1;           // of the update that was made last
  double missed_ = 0, moved_ = 0;  // squares of the update that arrived last, on this rank
  std::optional<double> error_{};  // of the same, over all ranks, as they told it
  std::string worst_weight_{};     // on this rank
  bool asks_to_stop_ = false, was_asked_to_stop_ = false;
};

}  // namespace hybrid_trainer
