#pragma once

#include <optional>
#include <vector>

#include "src/sharding/late_sum.h"
#include "src/trainer/flat_weights.h"
#include "src/trainer/pending_work.h"

namespace hybrid_trainer {

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
