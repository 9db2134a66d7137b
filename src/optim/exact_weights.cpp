#include "src/optim/exact_weights.h"

#include "src/optim/make_optimizer.h"

namespace hybrid_trainer {

void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream) {
  const Tensor& from = state.tensor(name);
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    throw DataError(concat("the checkpoint's ", name, " is ", name_of(from.dtype()), " ",
                           from.shape().text(), ", want ", name_of(to.dtype()), " ",
                           to.shape().text(),
                           "; continue with the run's own phases and mixed_precision"));
  wait_for_copy(to, from, stream);
}

void SentGradients::allocate(const Shape& shape, std::int64_t lag, const Stream& host,
                             const Stream& device) {
  lag_ = lag;
  const auto fill = [&](std::vector<Tensor>& gradients, std::int64_t count, const Stream& where) {
    while (std::ssize(gradients) < count)
      gradients.push_back(Tensor::empty(shape, DType::kF32, MemoryKind::kGradients, where));
  };
  fill(sent_, 2 * lag - 1, host);
  fill(here_, lag - 1, device);
  has_sent_.resize(sent_.size(), 0);
}

void SentGradients::free() {
  sent_.clear();
  here_.clear();
}

void SentGradients::send(const Tensor& gradient, std::int64_t step, const Stream& stream) {
  has_sent_[place(step)] = gradient ? 1 : 0;
  if (!gradient) return;
  copy_or_wait(sent_[place(step)], gradient, stream);
  if (lag_ > 1) copy_or_wait(kept_here(step), gradient, stream);
}

Tensor SentGradients::on_host(std::int64_t step) const {
  return has_sent_[place(step)] != 0 ? sent_[place(step)] : Tensor{};
}

Tensor SentGradients::on_device(std::int64_t step) const {
  return on_host(step) ? here_[static_cast<std::size_t>(step) % here_.size()] : Tensor{};
}

std::int64_t SentGradients::oldest_before(std::int64_t step) const {
  return std::max<std::int64_t>(0, step - lag_ + 1);
}

std::string SentGradients::key_at(std::int64_t step, const std::string& key) const {
  return concat("speculation.gradient.", place(step), ".", key);
}

void SentGradients::save(State& state, const std::string& key, std::int64_t step) const {
  for (std::int64_t one = oldest_before(step); one < step; ++one)
    if (on_host(one)) state.tensors[key_at(one, key)] = on_host(one);
}

void SentGradients::wait_and_load(const State& state, const std::string& key, std::int64_t step,
                                  const Stream& host, const Stream& device) {
  for (std::int64_t one = oldest_before(step); one < step; ++one) {
    const std::string name = key_at(one, key);
    has_sent_[place(one)] = state.tensors.contains(name) ? 1 : 0;
    if (!on_host(one)) continue;
    wait_and_take(sent_[place(one)], state, name, host);
    wait_for_copy(kept_here(one), sent_[place(one)], device);
  }
}

Tensor ExactStorage::acquire(DType dtype, const Stream& stream) {
  if (dtype == DType::kF32) return here_ ? here_ : home_;
  scratch_ = Tensor::empty(home_.shape(), dtype, MemoryKind::kWorkspace, stream);
  return scratch_;
}

void ExactStorage::release(DType dtype, Use, const Stream&) noexcept {
  if (dtype != DType::kF32) scratch_ = {};
}

std::vector<std::int64_t> piece_rows(const Parameter& parameter, std::int64_t most) {
  constexpr std::int64_t kPageElements = 2048;
  const std::int64_t rows = parameter.shape()[0], width = parameter.elements() / rows;
  if (parameter.elements() <= most) return {0, rows};
  const std::int64_t aligned = kPageElements / std::gcd(width, kPageElements);
  std::int64_t step = std::max<std::int64_t>(1, most / width);
  if (step > aligned) step -= step % aligned;
  std::vector<std::int64_t> cuts;
  for (std::int64_t row = 0; row < rows; row += step) cuts.push_back(row);
  cuts.push_back(rows);
  return cuts;
}

LoadedWeight::LoadedWeight(ExactWeight& weight, Prefetcher* prefetcher, const Stream& host)
    : weight_(weight) {
  const MemoryLabel label(weight.parameter->name());
  const auto stage = [&](const Tensor& home) -> const Tensor& {
    return held_.emplace_back(home, Use::kChange, host, prefetcher != nullptr, prefetcher);
  };
  master_ = stage(weight.storage->master_in_place());
  std::vector<Tensor> state;
  for (const Tensor* tensor : weight.state) state.push_back(stage(*tensor));
  for (std::size_t i = 0; i < state.size(); ++i)
    homes_.push_back(std::exchange(*weight.state[i], state[i]));
  weight.storage->set_loaded(master_);
}

LoadedWeight::~LoadedWeight() {
  weight_.storage->set_loaded({});
  for (std::size_t i = 0; i < homes_.size(); ++i) *weight_.state[i] = homes_[i];
}

ExactWeights::ExactWeights(const SpeculationSetup& setup)
    : host_(setup.host),
      prefetcher_(setup.home.pool() != setup.host ? std::make_unique<Prefetcher>() : nullptr) {
  add_weights(setup);
  std::vector<Parameter*> exact;
  for (const ExactWeight& weight : weights_) exact.push_back(weight.exact.get());
  if (weights_.size() == setup.parameters.size()) {
    optimizer_ = make_optimizer(setup.config, exact, host_, setup.home);
  } else {
    const Stream nowhere(MemoryPool::create("state", {}, simulated_memory({})));
    optimizer_ = make_optimizer(setup.config, exact, host_, nowhere);
  }
  place_state(setup.home);
}

void ExactWeights::add_weights(const SpeculationSetup& setup) {
  const auto& [config, parameters, settings, device, host, home] = setup;
  std::vector<std::int64_t> most(parameters.size(), std::numeric_limits<std::int64_t>::max());
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    if (settings.gradient_bits == 32 || group.kind->unit != UpdateUnit::kElement) continue;
    for (const std::size_t member : group.members) most[member] = settings.piece_elements;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = *parameters[i];
    const MemoryLabel label(parameter.name());
    const Tensor before = parameter.master_in_place();
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
    device.synchronize();  // before the old memory is freed
    parameter.set_storage(std::move(live));
  }
  first_piece_.push_back(weights_.size());
}

/// Assigns the state tensors to each weight. Pieces of a parameter share one tensor.
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
  if (prefetcher_) prefetcher_->drain();
  optimizer_->end_step(host_);
}

void ExactWeights::update(const ExactWeight& weight, const Tensor& gradient, float learning_rate,
                          float gradient_scale) {
  given_.give(*weight.exact, gradient);
  optimizer_->update_weight(index_of(weight), learning_rate, gradient_scale, host_);
}

}  // namespace hybrid_trainer
