#include "src/optim/experiments/selected_columns.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/predicted_update.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kColumnsForOneSelected = 10;  // the paper's 10 %

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
      const std::int64_t count = std::max<std::int64_t>(1, shape[1] / kColumnsForOneSelected);
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
  take(part, part.values->home_master(), master, stream);
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
  put(parts_[index], weight, parts_[index].values->home_master(), stream);
}

}  // namespace hybrid_trainer
