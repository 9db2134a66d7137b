#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/trainable.h"
#include "src/optim/predicted_weights.h"
#include "src/trainer/sharding/late_sum.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/step/training_step.h"

namespace hybrid_trainer {

/// What a method has pending in Predict beside the step: delayed updates, gradients of other ranks, or
/// exchanges of weights. Does nothing where the method has nothing pending.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual MethodSupport support() { return {}; }
  /// The model has entered Predict.
  virtual void enter_predict() {}
  /// An update was made at once, by a gradient that was clipped by `scale`.
  virtual void observe_update(float /*scale*/) {}
  /// Ends what is pending without its updates, for weights and state that are about to be loaded.
  virtual void drop() {}
  /// Calls `use` while the exact weights are in place of predicted ones.
  virtual void with_exact(const std::function<void()>& use) { use(); }
  /// Where ranks have something pending: whether any had called this with true by the step that it is
  /// of, the same on all ranks. Else absent.
  virtual std::optional<bool> vote_to_stop(bool /*asks*/) { return {}; }
  virtual void save(State&) const {}
  /// Weights and optimizer state have been loaded; `of_predict` is that of Predict.
  virtual void load(const State&, const Precision& /*of_predict*/) {}
};

/// That of the configured method. `step` must outlive it; `tell` receives one line where updates
/// cannot be delayed. Throws OutOfMemory.
std::unique_ptr<PendingWork> make_pending_work(const HybridTrainerConfig& config,
                                               TrainingStep& step,
                                               std::function<void(const std::string&)> tell);

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

/// Weights one after the other in one tensor, laid out as their gradients are.
class FlatWeights {
 public:
  /// Both must outlive it.
  FlatWeights(const std::vector<Parameter*>& weights, const OrderedGradients& layout,
              const Stream& stream)
      : weights_(weights), layout_(layout), stream_(stream) {}
  Shard all() const { return {0, layout_.elements()}; }
  /// So many zeros for what a prediction needs.
  Tensor zeros(std::int64_t elements) const;
  /// values = such elements of the masters; and the other way round, with their compute copies.
  void read(const Tensor& values, const Shard& elements) const;
  void write(const Tensor& values, const Shard& elements) const;

 private:
  template <class Call>
  void for_each_part(const Shard& elements, const Call& call) const;
  const std::vector<Parameter*>& weights_;
  const OrderedGradients& layout_;
  const Stream& stream_;
};

/// Such elements of a tensor of any shape.
Tensor part_of(const Tensor& tensor, const Shard& elements);

/// Local SGD: each rank trains on by itself, and every H steps (phases.local_sgd.steps) they exchange how
/// far they came. The mean Δ of θ − w over ranks, from the
/// weights θ that all had, is a gradient for Nesterov momentum u = μ·u + Δ, θ −= η·(Δ + μ·u). It
/// arrives `lag` steps after it was sent; what a rank did meanwhile is kept on top. Source: Douillard
/// et al. 2023, "DiLoCo", algorithm 1; sending it beside the next steps, and in fragments: Douillard
/// et al. 2025, "Streaming DiLoCo".
///
/// With F fragments (phases.local_sgd.fragments) each F-th of the weights is exchanged by itself, also
/// every H steps, fragment f (f + 1)·H/F steps after Predict began, so that the link carries at most
/// an F-th at once. With phases.local_sgd.exchange_bits below 32 an exchange is a LowBitSum.
///
/// At the end the ranks have one θ again, the mean of their moments, and the counter of the one that
/// made the most steps.
class LocalSgd final : public PendingWork, public LocalTraining {
 public:
  /// `step` computes the gradients, and its optimizer updates all weights. Throws OutOfMemory.
  LocalSgd(const HybridTrainerConfig& config, TrainingStep& step);

  /// Begins and ends exchanges, too. Throws OutOfMemory.
  LocalStep wait_for_step(const Batch& batch) override;
  /// What was not exchanged yet, fewer than H steps and what rounding left, moves θ by its mean in 32
  /// bits, and leaves u as it is. A collective.
  LocalStep wait_for_exact_weights() override;

  MethodSupport support() override { return {.local = this}; }
  void drop() override;
  /// Whoever is called finds θ in place of the weights.
  void with_exact(const std::function<void()>& use) override;
  /// Votes are told with each exchange.
  std::optional<bool> vote_to_stop(bool asks) override;
  /// Adds u, as views; and takes it, which is 0 where there is none.
  void save(State& state) const override;
  void load(const State& state, const Precision& of_predict) override;

 private:
  enum Word { kSkipped, kSteps, kStops };
  /// A part of the weights that is exchanged by itself.
  struct Fragment {
    Shard elements;           // of all
    std::int64_t offset = 0;  // steps before its first exchange begins
    std::int64_t steps = 0;   // since the last one began
    std::int64_t next = 0;    // steps after which the next one begins
    Tensor sent{};            // this rank's weights when it began
    bool is_rest = false;     // the exchange: of what end() found
    std::optional<LateSum> exchange{};
    LowBitErrors errors{};
  };
  bool are_under_way() const { return anchor_.defined(); }
  std::vector<Fragment> make_fragments() const;
  void begin();
  void update(const GradientMeasurement& own, double share);
  void begin_exchange(Fragment& fragment, bool is_rest);
  void finish_exchange(Fragment& fragment, LocalStep& step);
  std::vector<double> take_words(bool of_steps);
  void hear(const LateSum& exchange, LocalStep& step);
  void move_anchor(const Fragment& fragment, const Tensor& mean);
  void average_state();

  const LocalSgdConfig config_;
  const double clip_norm_;
  TrainingStep& step_;
  OrderedGradients& leaves_;
  const Stream& stream_;
  const FlatWeights weights_;
  // Laid out as the gradients are in `leaves_`.
  Tensor anchor_;    // θ
  Tensor momentum_;  // u; stays from Predict to Predict
  std::vector<Fragment> fragments_;
  std::int64_t since_exchange_ = 0;  // steps since one began
  // Not told yet: steps, losses of those that were finite, and how many were not.
  std::int64_t steps_ = 0;
  double skipped_ = 0;
  bool asks_to_stop_ = false, was_asked_to_stop_ = false;
};

}  // namespace hybrid_trainer
