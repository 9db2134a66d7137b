#pragma once

#include <optional>

#include "src/optim/experiments/selected_columns.h"
#include "src/optim/late_updates.h"

namespace hybrid_trainer {

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
  void save(State& state) const override;
  void load(const State& state, const std::vector<float>& rates, const Stream& stream) override;

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
