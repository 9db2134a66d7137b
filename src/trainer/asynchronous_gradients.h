#pragma once

#include <deque>
#include <vector>

#include "hybrid_trainer/optim/predicted_weights.h"
#include "src/sharding/late_sum.h"
#include "src/trainer/pending_work.h"

namespace hybrid_trainer {

/// Asynchronous gradients: the ranks sum a step's gradient beside the next steps, and the exact update
/// follows `lag` steps late. Which sum meets which step is fixed by counting, so that the bits do not
/// depend on the link. All decisions are made by sums over all ranks; how far an update was missed is
/// told with the next gradient that is sent. A step calls wait_for_own_gradient, wait_for_gradient,
/// apply where one arrived, and predict_weights.
///
/// Where ranks have parts of the weights, each sums, updates and predicts its own, and the predicted
/// ones are brought to where weights are whole, as updated ones are: all ranks compute with the same.
/// The next step wants these, and its gradient's sum only a later one, so a step sends them first.
class AsynchronousGradients final : public PendingWork, public DelayedGradients {
 public:
  /// `step` computes the gradients, and its optimizer updates this rank's parts of the weights, or
  /// all. Throws OutOfMemory.
  AsynchronousGradients(const HybridTrainerConfig& config, TrainingStep& step);

  /// A gradient whose norm is not finite predicts nothing. Throws OutOfMemory.
  double wait_for_own_gradient(const Batch& batch) override;
  std::optional<GradientMeasurement> wait_for_gradient(bool all) override;
  DelayedUpdate apply(bool finite) override;
  void predict_weights() override;
  void wait_for_exact_weights() override;

  MethodSupport support() override { return {.gradients = this}; }
  /// Pending updates are expected to be clipped as the last one was.
  void observe_update(float scale) override { clip_scale_ = scale; }
  void drop() override;
  /// A collective where ranks have parts: what it throws but Diverged, which all meet, may be one
  /// rank's alone, and leaves the exact weights there.
  void with_exact(const std::function<void()>& use) override;
  std::optional<bool> vote_to_stop(bool asks) override;
  void save(State& state) const override;
  void load(const State& state, const Precision& of_predict) override;

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
  void send(double loss, double norm);
  void begin_sums();
  void measure_prediction(const Flight& arrived);
  void exchange_whole_weights();

  const std::int64_t delay_;
  const double clip_norm_;
  TrainingStep& step_;
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
