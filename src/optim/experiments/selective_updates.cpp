#include "src/optim/experiments/selective_updates.h"

#include <numeric>

#include "hybrid_trainer/kernels/indexing.h"
#include "src/optim/make_optimizer.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kColumnsPerSelected = 10;  // the paper's 10 %

std::string column_key(const char* side, const char* part, const ExactWeight& weight) {
  return concat("speculation.selected.", side, ".", part, ".", weight.parameter->name());
}

/// Calls body(step, settings, update number) for the steps of a window that make an update.
template <class Window, class Body>
void for_updates(const Window& window, std::int64_t last, std::int64_t updates, const Body& body) {
  std::int64_t step = last - static_cast<std::int64_t>(window.size());
  std::int64_t update =
      updates - std::ranges::count_if(window, [](const auto& one) { return one.finite; });
  for (const auto& one : window) {
    ++step;
    if (one.finite) body(step, one, ++update);
  }
}

}  // namespace

SelectedColumns::SelectedColumns(const OptimizerConfig& config,
                                 const std::vector<ExactWeight>& weights, const Stream& stream) {
  std::vector<Parameter*> all;
  for (const ExactWeight& weight : weights) {
    const Parameter& whole = *weight.parameter;
    const MemoryLabel label(whole.name());
    Shape shape = whole.shape();
    Tensor indices;
    if (shape.rank() == 2) {
      const std::int64_t count = std::max<std::int64_t>(1, shape[1] / kColumnsPerSelected);
      shape = {count, shape[0]};
      indices = Tensor::empty({count}, DType::kI32, MemoryKind::kPredictor, stream);
    }
    parts_.push_back({std::make_unique<Parameter>(whole.name(), shape, whole.role(), stream),
                      std::move(indices)});
    all.push_back(parts_.back().values.get());
  }
  optimizer_ = make_optimizer(config, all, stream);
  optimizer_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (!is_moment(label.role)) return;
    for (Part& part : parts_) {
      if (part.values.get() == label.parameter) part.state.push_back(&tensor);
    }
  });
}

void SelectedColumns::select(std::size_t index, const Tensor& x, const Stream& host) {
  const Tensor& indices = parts_[index].indices;
  if (!indices) return;
  const auto means = [&](std::int64_t count) {
    return Tensor::empty({count}, DType::kF32, MemoryKind::kWorkspace, host);
  };
  const Tensor rows = means(x.size(0)), columns = means(x.size(1));
  kernels::row_and_column_means(rows, columns, x, 1, true, host);
  if (host.device().simulated) return;
  std::vector<std::int32_t> order(static_cast<std::size_t>(x.size(1)));
  std::iota(order.begin(), order.end(), 0);
  const float* const squares = columns.data<float>();
  const auto chosen = order.begin() + indices.elements();
  std::partial_sort(order.begin(), chosen, order.end(), [=](std::int32_t a, std::int32_t b) {
    return squares[a] > squares[b] || (squares[a] == squares[b] && a < b);
  });
  std::sort(order.begin(), chosen);
  std::copy(order.begin(), chosen, indices.data<std::int32_t>());
}

void SelectedColumns::take(const Part& part, const Tensor& to, const Tensor& from,
                           const Stream& stream) {
  part.indices ? kernels::gather_columns(to, from, part.indices, stream)
               : kernels::cast(to, from, stream);
}

void SelectedColumns::put(const Part& part, const Tensor& to, const Tensor& from,
                          const Stream& stream) {
  part.indices ? kernels::scatter_columns(to, from, part.indices, stream)
               : kernels::cast(to, from, stream);
}

void SelectedColumns::gather(std::size_t index, const Tensor& master,
                             const std::vector<Tensor*>& state, const Stream& stream) const {
  const Part& part = parts_[index];
  take(part, part.values->master_in_place(), master, stream);
  for (std::size_t i = 0; i < state.size(); ++i) take(part, *part.state[i], *state[i], stream);
}

void SelectedColumns::scatter(std::size_t index, const Tensor& master,
                              const std::vector<Tensor*>& state, const Stream& stream) const {
  const Part& part = parts_[index];
  write_to(index, master, stream);
  for (std::size_t i = 0; i < state.size(); ++i) put(part, *state[i], *part.state[i], stream);
}

void SelectedColumns::copy_from(const SelectedColumns& from, std::size_t index,
                                const Stream& stream) const {
  std::vector<Tensor> there;
  from.visit_tensors(index, [&](const char*, const Tensor& tensor) { there.push_back(tensor); });
  auto source = there.begin();
  visit_tensors(index, [&](const char*, const Tensor& tensor) {
    if (tensor) copy_or_wait(tensor, *source, stream);
    ++source;
  });
}

void SelectedColumns::update(std::size_t index, const Tensor& gradient, std::int64_t step,
                             float learning_rate, float gradient_scale, const Stream& stream) {
  const Part& part = parts_[index];
  const MemoryLabel label(part.values->name());
  Tensor own = gradient;
  if (part.indices) {
    own = Tensor::empty(part.values->shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    take(part, own, gradient, stream);
  }
  given_.give(*part.values, own);
  optimizer_->set_steps_taken(step - 1);
  optimizer_->begin_step(stream);
  optimizer_->update_weight(index, learning_rate, gradient_scale, stream);
  optimizer_->end_step(stream);
  given_.give(*part.values, {});
}

void SelectedColumns::write_to(std::size_t index, const Tensor& weight,
                               const Stream& stream) const {
  put(parts_[index], weight, parts_[index].values->master_in_place(), stream);
}

void SelectiveUpdates::allocate(const Stream& stream) {
  DelayedUpdates::allocate(stream);
  if (on_device_) return;
  if (!on_host_) on_host_.emplace(config_, exact_.all(), exact_.host());
  on_device_.emplace(config_, exact_.all(), stream);
  for (std::size_t i = bases_.size(); i < exact_.all().size(); ++i) {
    const Tensor master = exact_.all()[i].storage->master_in_place();
    bases_.push_back(exact_.are_on_host()
                         ? master
                         : Tensor::empty_like(master, MemoryKind::kPredictor, exact_.host()));
  }
}

void SelectiveUpdates::free_buffers() {
  DelayedUpdates::free_buffers();
  on_host_.reset();
  on_device_.reset();
  bases_.clear();
}

void SelectiveUpdates::submit_first_forecasts(const std::vector<float>&) {
  updates_ = exact_.optimizer().steps_taken();
  submit_gathering(true);
}

void SelectiveUpdates::submit_last_forecast(const std::vector<float>&) {
  updates_ = exact_.optimizer().steps_taken();
  submit_gathering(false);
}

/// Submits a job that copies the selected columns of the exact weights. If `selects`, first selects
/// them by the momentum, because no window has a mean gradient yet.
void SelectiveUpdates::submit_gathering(bool selects) {
  worker_.submit([this, selects] {
    exact_.for_each_loaded([&](ExactWeight& weight, const LoadedWeight& here) {
      if (selects) on_host_->select(exact_.index_of(weight), *weight.m, exact_.host());
      write_base(exact_.index_of(weight), here);
    });
  });
}

void SelectiveUpdates::write_base(std::size_t index, const LoadedWeight& here) {
  on_host_->gather(index, here.master(), exact_.all()[index].state, exact_.host());
  if (!exact_.are_on_host()) kernels::cast(bases_[index], here.master(), exact_.host());
}

double SelectiveUpdates::wait_for_forecast() {
  return takes_columns() ? worker_.wait_until_idle() : 0;
}

void SelectiveUpdates::compose(const Stream& stream) {
  if (pending_.back().finite) ++updates_;
  const bool takes = takes_columns();
  const std::deque<PendingUpdate> window =
      takes ? pending_ : std::deque<PendingUpdate>{pending_.back()};
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    ExactWeight& weight = exact_.all()[i];
    const MemoryLabel label(weight.parameter->name());
    if (takes) {
      kernels::cast(weight.live->live(), StagedTensor(bases_[i], Use::kRead, stream), stream);
      on_device_->copy_from(*on_host_, i, stream);
    }
    for_updates(window, step_, updates_,
                [&](std::int64_t step, const PendingUpdate& one, auto update) {
                  const Tensor gradient = gradient_on_device(weight, step, one);
                  if (gradient)
                    on_device_->update(i, gradient, update, one.learning_rate, one.scale, stream);
                });
    on_device_->write_to(i, weight.live->live(), stream);
    weight.live->set_exact(false);
  }
}

void SelectiveUpdates::submit_update(const DelayedStep&) {
  if ((step_ + 1) % lag_ == 0) submit_window(step_, lag_);
}

void SelectiveUpdates::submit_window(std::int64_t last, std::int64_t steps) {
  worker_.submit([this, last, updates = updates_,
                  window = std::deque<PendingUpdate>(pending_.end() - steps, pending_.end())] {
    update_window(last, window, updates);
  });
}

void SelectiveUpdates::update_window(std::int64_t last, const std::deque<PendingUpdate>& window,
                                     std::int64_t updates) {
  sent_.synchronize();  // also waits for readers of the columns that are reselected
  if (std::ranges::none_of(window, &PendingUpdate::finite)) return;
  exact_.optimizer().set_steps_taken(updates - 1);
  exact_.update_each([&](ExactWeight& weight, const LoadedWeight& here) {
    update_weight(weight, here, last, window, updates);
  });
}

void SelectiveUpdates::update_weight(ExactWeight& weight, const LoadedWeight& here,
                                     std::int64_t last, const std::deque<PendingUpdate>& window,
                                     std::int64_t updates) {
  const std::size_t index = exact_.index_of(weight);
  const Tensor mean =
      Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kWorkspace, exact_.host());
  int count = 0;
  for_updates(window, last, updates, [&](std::int64_t step, const PendingUpdate& one, auto update) {
    const Tensor gradient = weight.gradients.on_host(step);
    if (!gradient) return;
    on_host_->update(index, gradient, update, one.learning_rate, one.scale, exact_.host());
    if (count++ == 0) {
      kernels::scale(mean, gradient, one.scale, exact_.host());
    } else {
      kernels::axpy(mean, mean, one.scale, gradient, exact_.host());
    }
  });
  if (count == 0) return;
  kernels::scale(mean, mean, 1 / static_cast<float>(count), exact_.host());
  exact_.update(weight, mean, window.back().learning_rate, 1);
  on_host_->scatter(index, here.master(), weight.state, exact_.host());
  on_host_->select(index, mean, exact_.host());
  write_base(index, here);
}

void SelectiveUpdates::wait_for_exact_weights(const Stream& stream) {
  const bool was_delayed = is_delayed_;
  if (was_delayed && step_ % lag_ != 0) submit_window(step_ - 1, step_ % lag_);
  DelayedUpdates::wait_for_exact_weights(stream);
  if (was_delayed) on_device_.reset();
}

void SelectiveUpdates::save_delayed(State& state) const {
  DelayedUpdates::save_delayed(state);
  if (!is_saved(state)) return;
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    on_host_->visit_tensors(i, [&](const std::string& part, const Tensor& tensor) {
      if (part == "columns" && tensor)
        state.tensors[column_key("next", "columns", exact_.all()[i])] = tensor;
    });
    if (takes_columns()) continue;
    on_device_->visit_tensors(i, [&](const char* part, const Tensor& tensor) {
      if (tensor) state.tensors[column_key("live", part, exact_.all()[i])] = tensor;
    });
  }
}

void SelectiveUpdates::load_delayed(const State& state, const std::vector<float>& rates,
                                    const Stream& stream) {
  if (!is_saved(state)) return;
  allocate(stream);
  const auto take = [&](const SelectedColumns& columns, const char* side, const Stream& where) {
    for (std::size_t i = 0; i < exact_.all().size(); ++i) {
      columns.visit_tensors(i, [&](const char* part, const Tensor& tensor) {
        const std::string key = column_key(side, part, exact_.all()[i]);
        if (tensor && state.tensors.contains(key)) wait_for_copy(tensor, state.tensor(key), where);
      });
    }
  };
  take(*on_host_, "next", exact_.host());
  take(*on_device_, "live", stream);
  DelayedUpdates::load_delayed(state, rates, stream);
}

}  // namespace hybrid_trainer
