#pragma once

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/exact_weights.h"
#include "src/optim/late_updates.h"

namespace hybrid_trainer {

/// A tenth of each matrix's columns (input features), at least one, and every other weight as a
/// whole, with an optimizer of their own on the stream's device. A column is kept as a row: those of
/// a matrix (R, C) are (K, R), and Muon orthogonalises them as a matrix of its own.
class SelectedColumns {
 public:
  SelectedColumns(const OptimizerConfig& config, const std::vector<ExactWeight>& weights,
                  const Stream& stream);

  /// On the host: from now on weight `index`'s columns are those of the largest norms in x, of two
  /// equal ones the first.
  void select(std::size_t index, const Tensor& x, const Stream& host);
  /// Values and state of the columns from a weight's, and the other way, which all lie at hand.
  void gather(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
              const Stream& stream) const;
  void scatter(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
               const Stream& stream) const;
  /// Columns, values and state as in `from`, wherever that lies.
  void copy_from(const SelectedColumns& from, std::size_t index, const Stream& stream) const;
  /// The optimizer's update number `step` of these columns by the whole weight's gradient.
  void update(std::size_t index, const Tensor& gradient, std::int64_t step, float learning_rate,
              float gradient_scale, const Stream& stream);
  /// weight (f32 or bf16): its columns become these.
  void write_to(std::size_t index, const Tensor& weight, const Stream& stream) const;
  /// visit(name of the part, tensor): the columns' indices, undefined for a whole weight, their values
  /// and state.
  template <class Visitor>
  void visit_tensors(std::size_t index, const Visitor& visit) const {
    const Part& part = parts_[index];
    visit("columns", part.indices);
    visit("values", part.values->home_master());
    for (std::size_t i = 0; i < part.state.size(); ++i) visit(i == 0 ? "m" : "v", *part.state[i]);
  }

 private:
  struct Part {
    std::unique_ptr<Parameter> values;
    Tensor indices;  // (K) i32, ascending; undefined: all of the weight
    std::vector<Tensor*> state{};
  };
  static void take(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);
  static void put(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);

  GivenGradients given_;
  std::vector<Part> parts_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// A control: a tenth of each matrix's columns, those of the largest gradients, and all other kinds
/// of weights are updated at once on the device, by the optimizer's rule; the other columns take one
/// update for S = L steps, by the mean of their gradients at the last one's rate, which arrives S
/// steps late. Source: ZenFlow, arXiv 2505.12242, as we read it.
///
/// Steps go in windows of S. When one has ended, the worker makes the selected columns' updates one
/// by one and that of the rest, and selects the columns to come by the mean gradient. Composition
/// (w + 2)·S − 1, with which window w + 1 ends, takes weights, columns and their state as window w
/// left them and makes the selected columns' updates since; the others add their own step's. So a
/// column that becomes selected loses no gradient, and one that no longer is becomes late again.
/// Both sides count the steps of the selected columns' state by gradients.
class SelectiveUpdates final : public LateUpdates {
 public:
  SelectiveUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                   const SpeculationSettings& settings, const Stream& device,
                   const std::shared_ptr<MemoryPool>& host, const Stream& home)
      : LateUpdates(config, parameters, settings, device, host, home), config_(config) {}
  ~SelectiveUpdates() override { worker_.stop(); }

  /// A window that has not ended ends.
  void wait_for_exact_weights(const Stream& stream) override;
  void save_late(State& state) const override;
  void load_late(const State& state, const std::vector<float>& rates,
                 const Stream& stream) override;

 private:
  double wait_for_forecast() override;
  bool starts_anew_without_an_update() const override { return false; }
  void compose(const Stream& stream) override;
  void submit_update(const LateStep& step) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  void submit_first_forecasts(const std::vector<float>& rates) override;
  void submit_last_forecast(const std::vector<float>& rates) override;

  bool takes_columns() const { return step_ == 0 || (step_ + 1) % lag_ == 0; }
  void submit_gathering(bool selects);
  void submit_window(std::int64_t last, std::int64_t steps);
  /// `window`: its steps, of which `last` is the last; `updates`: of all steps up to it.
  void update_window(std::int64_t last, const std::deque<Flying>& window, std::int64_t updates);
  void update_weight(ExactWeight& weight, const AtHand& here, std::int64_t last,
                     const std::deque<Flying>& window, std::int64_t updates);
  void write_base(std::size_t index, const AtHand& here);

  OptimizerConfig config_;
  std::optional<SelectedColumns> on_host_, on_device_;
  std::vector<Tensor> bases_;  // masters after the last window, on the host
  std::int64_t updates_ = 0;   // of all steps so far, whether they are made or under way
};

}  // namespace hybrid_trainer
