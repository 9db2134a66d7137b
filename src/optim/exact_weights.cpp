#include "src/optim/exact_weights.h"

#include <limits>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_source.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "src/optim/optimizer_groups.h"

namespace hybrid_trainer {

ExactWeights::ExactWeights(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                           const SpeculationSettings& settings, const Stream& device,
                           const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : host_(host), prefetcher_(home.pool() != host ? std::make_unique<Prefetcher>() : nullptr) {
  add_weights(parameters, config, settings, device, home);
  std::vector<Parameter*> exact;
  for (const ExactWeight& weight : weights_) exact.push_back(weight.exact.get());
  if (weights_.size() == parameters.size()) {
    optimizer_ = make_optimizer(config, exact, host_, home);
  } else {
    const Stream nowhere(MemoryPool::create("state", {}, simulated_memory({})));
    optimizer_ = make_optimizer(config, exact, host_, nowhere);
  }
  place_state(home);
}

void ExactWeights::add_weights(const std::vector<Parameter*>& parameters,
                               const OptimizerConfig& config, const SpeculationSettings& settings,
                               const Stream& device, const Stream& home) {
  std::vector<std::int64_t> most(parameters.size(), std::numeric_limits<std::int64_t>::max());
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    if (settings.gradient_bits == 32 || group.kind->unit != UpdateUnit::kElement) continue;
    for (const std::size_t member : group.members) most[member] = settings.piece_elements;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = *parameters[i];
    const MemoryLabel label(parameter.name());
    const Tensor before = parameter.home_master();
    const Tensor master = Tensor::empty_like(before, MemoryKind::kMasterWeights, home);
    wait_for_copy(master, before, device);
    auto live = std::make_unique<LiveWeight>(master, device);
    const std::vector<std::int64_t> cuts = piece_rows(parameter, most[i]);
    first_piece_.push_back(weights_.size());
    for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
      ExactWeight weight;
      weight.parameter = &parameter;
      weight.first_row = cuts[piece];
      weight.rows = cuts[piece + 1] - cuts[piece];
      weight.live = live.get();
      const Tensor rows = weight.of(master);
      auto storage = std::make_unique<ExactStorage>(rows, *live);
      weight.storage = storage.get();
      const std::string name = weight.is_part()
                                   ? concat(parameter.name(), ".rows.", weight.first_row)
                                   : parameter.name();
      weight.exact =
          std::make_unique<Parameter>(name, rows.shape(), parameter.role(), std::move(storage));
      if (!weight.is_part()) weight.exact->set_blocks(parameter.blocks());
      weights_.push_back(std::move(weight));
    }
    device.synchronize();  // before the old memory goes
    parameter.set_storage(std::move(live));
  }
  first_piece_.push_back(weights_.size());
}

/// Gives each weight its tensors of the state; the whole of what is in pieces is one tensor.
void ExactWeights::place_state(const Stream& home) {
  std::unordered_map<const Parameter*, ExactWeight*> weight_of;
  for (ExactWeight& weight : weights_) weight_of[weight.exact.get()] = &weight;
  const bool has_parts = weights_.size() + 1 != first_piece_.size();
  std::map<std::pair<const Parameter*, StateRole>, Tensor> wholes;
  optimizer_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (!is_moment(label.role)) return;
    ExactWeight& weight = *weight_of.at(label.parameter);
    const bool is_momentum = label.role == StateRole::kMomentum;
    weight.state.push_back(&tensor);
    (is_momentum ? weight.m : weight.v) = &tensor;
    if (!has_parts) return;
    const MemoryLabel of_weight(weight.parameter->name());
    Tensor& whole = wholes[{weight.parameter, label.role}];
    const bool is_first = !whole;
    if (is_first)
      whole = Tensor::zeros(weight.parameter->shape(), tensor.dtype(), MemoryKind::kOptimizerState,
                            home);
    tensor = weight.of(whole);
    if (!weight.is_part()) return;
    const std::string name = weight.parameter->name() + (is_momentum ? ".m" : ".v");
    whole_state_[&tensor] = {{weight.parameter, label.role, name}, is_first ? whole : Tensor{}};
  });
}

void ExactWeights::visit_state(const Optimizer::StateVisitor& visit) {
  optimizer_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    const auto found = whole_state_.find(&tensor);
    if (found == whole_state_.end()) return visit(label, tensor);
    if (found->second.tensor) visit(found->second.label, found->second.tensor);
  });
}

void ExactWeights::begin_step() {
  optimizer_->begin_step(host_);
  if (prefetcher_) prefetcher_->begin_pass();
}

void ExactWeights::end_step() {
  if (prefetcher_) prefetcher_->settle();
  optimizer_->end_step(host_);
}

void ExactWeights::update(const ExactWeight& weight, const Tensor& gradient, float learning_rate,
                          float gradient_scale) {
  given_.give(*weight.exact, gradient);
  optimizer_->update_weight(index_of(weight), learning_rate, gradient_scale, host_);
}

}  // namespace hybrid_trainer
