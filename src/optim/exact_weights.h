#pragma once

#include <unordered_map>

#include "hybrid_trainer/nn/weight.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/core/prefetcher.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// Gradients of one weight whose exact updates are pending. With a lag of L steps, stores the last
/// 2L − 1 in host memory for the worker, and the last L except the newest on the device.
class SentGradients {
 public:
  void allocate(const Shape& shape, std::int64_t lag, const Stream& host, const Stream& device);
  void free();
  void free_on_device() { here_.clear(); }
  /// Stores the step's gradient, or records that there is none. `gradient` may be overwritten after
  /// the copies.
  void send(const Tensor& gradient, std::int64_t step, const Stream& stream);
  Tensor on_host(std::int64_t step) const;
  Tensor on_device(std::int64_t step) const;
  /// Saves the gradients of the last L − 1 steps before `step`, under the weight's `key`. Blocks.
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
  std::vector<Tensor> sent_, here_;  // indexed by step
  std::vector<char> has_sent_;       // indexed by step: whether there is a gradient
};

/// Copies a tensor of `state` to `to`. Throws DataError if its shape or dtype differs. Blocks.
void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream);

class GivenGradients final : public GradientSink {
 public:
  Tensor gradient(const Parameter&) const override { return now_; }
  void give(Parameter& parameter, const Tensor& gradient) {
    now_ = gradient;
    parameter.begin_gradient(*this, 1);
    if (gradient) parameter.mark_gradient_replayed();
  }

 private:
  Tensor now_;
};

/// The f32 master weights for in-place updates. Reports the device's compute dtype, because an
/// optimizer may depend on it. The bf16 copy is scratch memory that nothing reads.
class ExactStorage final : public WeightStorage {
 public:
  ExactStorage(Tensor home, const LiveWeight& live) : home_(std::move(home)), live_(live) {}
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use, const Stream&) noexcept override;
  Tensor master_in_place() const override { return home_; }
  void compute_in(DType, const Stream&) override {}
  DType compute_dtype() const override { return live_.compute_dtype(); }
  void refresh_compute_copy(const Stream&) override {}
  /// Uses `here` as the master weights. An undefined tensor restores the original master weights.
  void set_loaded(Tensor here) { here_ = std::move(here); }

 private:
  Tensor home_, here_, scratch_;
  const LiveWeight& live_;
};

/// One weight, or a range of its rows: exact and live values, and data in flight.
struct ExactWeight {
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0, rows = 0;  // row range in the parameter
  LiveWeight* live = nullptr;            // storage of the parameter
  ExactStorage* storage = nullptr;       // storage of `exact`
  std::unique_ptr<Parameter> exact{};    // updated by the exact optimizer
  std::vector<Tensor*> state{};          // tensors of the exact optimizer
  Tensor *m = nullptr, *v = nullptr;     // moments in `state`, if any
  std::size_t group = 0;                 // index of its predictors
  double rate_factor = 1;                // multiplies the learning rate
  SentGradients gradients{};
  std::vector<UpdateForecast> forecasts{};  // indexed by step

  bool is_part() const { return rows < parameter->shape()[0]; }
  /// Returns the weight's rows of a tensor that has the parameter's shape.
  Tensor of(const Tensor& whole) const {
    return whole && is_part() ? whole.rows(first_row, first_row + rows) : whole;
  }
};

/// Returns the first row of each piece of a parameter, and the end. Pieces have at most `most`
/// elements or one row, and are whole pages of the bf16 copy if possible.
std::vector<std::int64_t> piece_rows(const Parameter& parameter, std::int64_t most);

/// Keeps a weight and its state in host memory during this object's lifetime. The prefetcher loads
/// both and writes them back; it must outlive this object.
class LoadedWeight {
 public:
  /// `prefetcher`: null if master and state are in host memory. Throws OutOfMemory, IoError.
  LoadedWeight(ExactWeight& weight, Prefetcher* prefetcher, const Stream& host);
  ~LoadedWeight();
  LoadedWeight(const LoadedWeight&) = delete;
  LoadedWeight& operator=(const LoadedWeight&) = delete;
  const Tensor& master() const { return master_; }

 private:
  std::deque<StagedTensor> held_;
  ExactWeight& weight_;
  Tensor master_;
  std::vector<Tensor> homes_;  // primary location of the state
};

/// Arguments of make_speculative_optimizer.
struct SpeculationSetup {
  const OptimizerConfig& config;
  const std::vector<Parameter*>& parameters;
  const SpeculationSettings& settings;
  const Stream& device;
  const std::shared_ptr<MemoryPool>& host;
  const Stream& home;
};

/// Exact weights of a SpeculativeOptimizer and the state of its exact optimizer. Both are in host
/// memory, or in a file from which one weight at a time is loaded.
class ExactWeights {
 public:
  /// Gives each parameter LiveWeight storage. Throws ConfigError, OutOfMemory.
  explicit ExactWeights(const SpeculationSetup& setup);

  const Stream& host() const { return host_; }
  bool are_on_host() const { return prefetcher_ == nullptr; }
  Optimizer& optimizer() const { return *optimizer_; }
  std::vector<ExactWeight>& all() { return weights_; }
  const std::vector<ExactWeight>& all() const { return weights_; }
  std::span<ExactWeight> of_parameter(std::size_t index) {
    return std::span(weights_).subspan(first_piece_[index],
                                       first_piece_[index + 1] - first_piece_[index]);
  }
  std::size_t index_of(const ExactWeight& weight) const {
    return static_cast<std::size_t>(&weight - weights_.data());
  }
  /// Visits the exact optimizer's state. Pieces of a parameter are visited as whole tensors.
  void visit_state(const Optimizer::StateVisitor& visit);

  /// Call begin_step before and end_step after the exact updates of a step.
  void begin_step();
  void end_step();
  LoadedWeight load(ExactWeight& weight) { return LoadedWeight(weight, prefetcher_.get(), host_); }
  void update(const ExactWeight& weight, const Tensor& gradient, float learning_rate,
              float gradient_scale);
  /// Calls body(weight, loaded) for each weight. Meanwhile, the previous weight is written and the
  /// next one is read.
  template <class Body>
  void for_each_loaded(const Body& body) {
    if (prefetcher_) prefetcher_->begin_pass();
    for (ExactWeight& weight : weights_) {
      const MemoryLabel label(weight.parameter->name());
      body(weight, load(weight));
    }
    if (prefetcher_) prefetcher_->drain();
  }
  template <class Body>
  void update_each(const Body& body) {
    optimizer_->begin_step(host_);
    for_each_loaded(body);
    optimizer_->end_step(host_);
  }

 private:
  void add_weights(const SpeculationSetup& setup);
  void place_state(const Stream& home);

  Stream host_;                             // stream of the worker
  std::unique_ptr<Prefetcher> prefetcher_;  // null if all is in host memory
  std::vector<ExactWeight> weights_;
  std::vector<std::size_t> first_piece_;  // indexed by parameter, and the end
  GivenGradients given_;                  // source of the optimizer's gradients
  std::unique_ptr<Optimizer> optimizer_;
  /// Entry of whole_state_ for a state tensor of a piece of a parameter. `tensor` is the state of
  /// the whole parameter for its first piece, and undefined for its other pieces.
  struct WholeState {
    StateLabel label;
    Tensor tensor;
  };
  std::unordered_map<const Tensor*, WholeState> whole_state_;
};

}  // namespace hybrid_trainer
