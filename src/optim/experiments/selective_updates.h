#pragma once

#include "src/optim/delayed_updates.h"

namespace hybrid_trainer {

/// Weights that the device updates immediately: a tenth of each matrix's columns (input features),
/// but at least one, and all weights that are not matrices. Their optimizer is on the stream's
/// device. K columns of a matrix (R, C) are stored as (K, R), which Muon orthogonalizes as one
/// matrix.
class SelectedColumns {
 public:
  SelectedColumns(const OptimizerConfig& config, const std::vector<ExactWeight>& weights,
                  const Stream& stream);

  /// Selects the columns with the largest norms in x; the first ones win ties. Runs on the host.
  void select(std::size_t index, const Tensor& x, const Stream& host);
  /// gather copies values and state of the columns from a loaded weight. scatter copies them back.
  void gather(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
              const Stream& stream) const;
  void scatter(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
               const Stream& stream) const;
  /// Copies columns, values and state of a weight from `from`, which may be on another device.
  void copy_from(const SelectedColumns& from, std::size_t index, const Stream& stream) const;
  /// Makes update `step` of the columns of weight `index`. `gradient`: gradient of the whole
  /// weight.
  void update(std::size_t index, const Tensor& gradient, std::int64_t step, float learning_rate,
              float gradient_scale, const Stream& stream);
  void write_to(std::size_t index, const Tensor& weight, const Stream& stream) const;
  /// Calls visit(name, tensor) for column indices (undefined for whole weights), values and state.
  template <class Visitor>
  void visit_tensors(std::size_t index, const Visitor& visit) const {
    const Part& part = parts_[index];
    visit("columns", part.indices);
    visit("values", part.values->master_in_place());
    for (std::size_t i = 0; i < part.state.size(); ++i) visit(i == 0 ? "m" : "v", *part.state[i]);
  }

 private:
  struct Part {
    std::unique_ptr<Parameter> values;
    Tensor indices;  // (K) i32, ascending; undefined: the whole weight
    std::vector<Tensor*> state{};
  };
  static void take(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);
  static void put(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);

  GivenGradients given_;
  std::vector<Part> parts_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// A control: selective updates. The device immediately updates the tenth of each matrix's columns
/// with the largest gradients, and all weights that are not matrices. All other columns are updated
/// once per S = L steps, by their mean gradient and with the rate of the last step. This update
/// arrives S steps late. Source: ZenFlow, arXiv 2505.12242, as we read it.
///
/// Steps are grouped in windows of S. At the end of a window, the worker makes the updates of the
/// selected columns one by one and the single update of the other columns, and selects the next
/// columns by the mean gradient. Composition (w + 2)·S − 1, at the end of window w + 1, takes
/// weights, columns and their state from the end of window w, and repeats the updates of the
/// selected columns since then. Other compositions add only the update of their step. A newly
/// selected column therefore loses no gradient. For the state of the selected columns, host and
/// device count one step per gradient.
class SelectiveUpdates final : public DelayedUpdates {
 public:
  explicit SelectiveUpdates(const SpeculationSetup& setup)
      : DelayedUpdates(setup), config_(setup.config) {}
  ~SelectiveUpdates() override { worker_.stop(); }

  /// Ends the current window, then waits for exact weights.
  void wait_for_exact_weights(const Stream& stream) override;
  void save_delayed(State& state) const override;
  void load_delayed(const State& state, const std::vector<float>& rates,
                    const Stream& stream) override;

 private:
  double wait_for_forecast() override;
  bool restarts_without_update() const override { return false; }
  void compose(const Stream& stream) override;
  void submit_update(const DelayedStep& step) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  void submit_first_forecasts(const std::vector<float>& rates) override;
  void submit_last_forecast(const std::vector<float>& rates) override;

  bool takes_columns() const { return step_ == 0 || (step_ + 1) % lag_ == 0; }
  void submit_gathering(bool selects);
  void submit_window(std::int64_t last, std::int64_t steps);
  /// `window`: steps up to and including `last`. `updates`: number of updates up to `last`.
  void update_window(std::int64_t last, const std::deque<PendingUpdate>& window,
                     std::int64_t updates);
  void update_weight(ExactWeight& weight, const LoadedWeight& here, std::int64_t last,
                     const std::deque<PendingUpdate>& window, std::int64_t updates);
  void write_base(std::size_t index, const LoadedWeight& here);

  OptimizerConfig config_;
  std::optional<SelectedColumns> on_host_, on_device_;
  std::vector<Tensor> bases_;  // masters after the last window, in host memory
  std::int64_t updates_ = 0;   // number of updates so far, including pending ones
};

}  // namespace hybrid_trainer
