#pragma once

#include <unordered_map>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/weight.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/core/prefetcher.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// One weight's gradients whose exact updates have not arrived, with a lag of L steps: the last 2L − 1
/// on the host for the worker, and on the device the last L but for the newest.
class SentGradients {
 public:
  /// Does nothing where it has memory.
  void allocate(const Shape& shape, std::int64_t lag, const Stream& host, const Stream& device);
  void free();
  void free_on_device() { here_.clear(); }
  /// Notes an undefined one as none. Its memory may be written when `stream` is done.
  void send(const Tensor& gradient, std::int64_t step, const Stream& stream);
  /// Of a step; undefined where there is none.
  Tensor on_host(std::int64_t step) const;
  Tensor on_device(std::int64_t step) const;
  /// Those of the last L − 1 steps before `step`; `key` of the weight. Blocks.
  void save(State& state, const std::string& key, std::int64_t step) const;
  void wait_and_load(const State& state, const std::string& key, std::int64_t step,
                     const Stream& host, const Stream& device);

 private:
  std::size_t place(std::int64_t step) const {
    return static_cast<std::size_t>(step) % sent_.size();
  }
  Tensor& kept_here(std::int64_t step) {
    return here_[static_cast<std::size_t>(step) % here_.size()];
  }
  std::string key_at(std::int64_t step, const std::string& key) const;
  std::int64_t oldest_before(std::int64_t step) const;

  std::int64_t lag_ = 1;
  std::vector<Tensor> sent_, here_;  // by step
  std::vector<char> has_sent_;       // whether there is one
};

/// Throws DataError where the state's tensor has another shape or dtype. Blocks.
void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream);

/// Hands each weight the gradient that its update takes.
class GivenGradients final : public GradientSink {
 public:
  Tensor gradient(const Parameter&) const override { return now_; }
  void give(Parameter& parameter, const Tensor& gradient) {
    now_ = gradient;
    parameter.begin_gradient(*this, 1);
    if (gradient) parameter.gradient_was_replayed();
  }

 private:
  Tensor now_;
};

/// A weight's f32 master for an optimizer that works where it lies. Says the dtype in which the
/// device computes with the weight, by which an optimizer may choose, and gives scratch memory for a
/// copy in bf16, as nobody reads it.
class ExactStorage final : public WeightStorage {
 public:
  ExactStorage(Tensor home, const LiveWeight& live) : home_(std::move(home)), live_(live) {}
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use, const Stream&) noexcept override;
  Tensor home_master() const override { return home_; }
  void compute_in(DType, const Stream&) override {}
  DType compute_dtype() const override { return live_.compute_dtype(); }
  void refresh_compute_copy(const Stream&) override {}
  /// Until it is called with an undefined tensor, the master is this one.
  void stand_in(Tensor here) { here_ = std::move(here); }

 private:
  Tensor home_, here_, scratch_;
  const LiveWeight& live_;
};

/// One weight on both sides, or some rows of it, and what is on its way between them.
struct ExactWeight {
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0, rows = 0;  // of the parameter
  LiveWeight* live = nullptr;            // the parameter's
  ExactStorage* storage = nullptr;       // the exact one's
  std::unique_ptr<Parameter> exact{};    // what the exact optimizer updates
  std::vector<Tensor*> state{};          // the exact optimizer's tensors
  Tensor *m = nullptr, *v = nullptr;     // among them, where there are such
  std::size_t group = 0;                 // of its predictors
  double rate_factor = 1;                // of the learning rate
  SentGradients gradients{};
  std::vector<UpdateForecast> forecasts{};  // by step

  bool is_part() const { return rows < parameter->shape()[0]; }
  /// These rows of a tensor in the parameter's shape.
  Tensor of(const Tensor& whole) const {
    return whole && is_part() ? whole.rows(first_row, first_row + rows) : whole;
  }
};

/// Where to cut a parameter into pieces of at most `most` elements, or one row, that are whole pages of
/// its bf16 copy where rows allow it: the first row of each piece, and the end.
std::vector<std::int64_t> piece_rows(const Parameter& parameter, std::int64_t most);

/// A weight's master and state in host memory until this is destroyed: where they do not lie there
/// the prefetcher, which must outlive this, brings them and takes them back.
class AtHand {
 public:
  /// `prefetcher`: none where they lie on the host. Throws OutOfMemory, IoError.
  AtHand(ExactWeight& weight, Prefetcher* prefetcher, const Stream& host);
  ~AtHand();
  AtHand(const AtHand&) = delete;
  AtHand& operator=(const AtHand&) = delete;
  const Tensor& master() const { return master_; }

 private:
  std::deque<StagedTensor> held_;
  ExactWeight& weight_;
  Tensor master_;
  std::vector<Tensor> homes_;  // of the state
};

/// The exact weights of a SpeculativeOptimizer and the state of its exact optimizer. They lie on the
/// host, or in a file, from which a weight at a time is brought to the host.
class ExactWeights {
 public:
  /// Gives each parameter LiveWeight storage. Throws ConfigError, OutOfMemory.
  ExactWeights(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
               const SpeculationSettings& settings, const Stream& device,
               const std::shared_ptr<MemoryPool>& host, const Stream& home);

  const Stream& host() const { return host_; }
  bool are_on_host() const { return prefetcher_ == nullptr; }
  Optimizer& optimizer() const { return *optimizer_; }
  std::vector<ExactWeight>& all() { return weights_; }
  const std::vector<ExactWeight>& all() const { return weights_; }
  /// Those that a parameter consists of.
  std::span<ExactWeight> of_parameter(std::size_t index) {
    return std::span(weights_).subspan(first_piece_[index],
                                       first_piece_[index + 1] - first_piece_[index]);
  }
  std::size_t index_of(const ExactWeight& weight) const {
    return static_cast<std::size_t>(&weight - weights_.data());
  }
  /// State of a parameter that is in pieces is visited as a whole.
  void visit_state(const Optimizer::StateVisitor& visit);

  /// Around the exact updates of a step.
  void begin_step();
  void end_step();
  AtHand at_hand(ExactWeight& weight) { return AtHand(weight, prefetcher_.get(), host_); }
  /// The exact update of a weight that is at hand.
  void update(const ExactWeight& weight, const Tensor& gradient, float learning_rate,
              float gradient_scale);
  /// body(weight, at hand) for each weight; while one is used, the last is written and the next read.
  template <class Body>
  void for_each_at_hand(const Body& body) {
    if (prefetcher_) prefetcher_->begin_pass();
    for (ExactWeight& weight : weights_) {
      const MemoryLabel label(weight.parameter->name());
      body(weight, at_hand(weight));
    }
    if (prefetcher_) prefetcher_->settle();
  }
  /// The same as one step of exact updates.
  template <class Body>
  void update_each(const Body& body) {
    optimizer_->begin_step(host_);
    for_each_at_hand(body);
    optimizer_->end_step(host_);
  }

 private:
  void add_weights(const std::vector<Parameter*>& parameters, const OptimizerConfig& config,
                   const SpeculationSettings& settings, const Stream& device, const Stream& home);
  void place_state(const Stream& home);

  Stream host_;                             // the worker's
  std::unique_ptr<Prefetcher> prefetcher_;  // of what does not lie on the host
  std::vector<ExactWeight> weights_;
  std::vector<std::size_t> first_piece_;  // of each parameter, and the end
  GivenGradients given_;                  // to the optimizer
  std::unique_ptr<Optimizer> optimizer_;
  /// Of tensors of the optimizer that are parts, the first of each: the whole.
  struct WholeState {
    StateLabel label;
    Tensor tensor;
  };
  std::unordered_map<const Tensor*, WholeState> whole_state_;
};

}  // namespace hybrid_trainer
