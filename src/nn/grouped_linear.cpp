#include "hybrid_trainer/nn/grouped_linear.h"

#include <algorithm>
#include <deque>

#include "hybrid_trainer/core/error.h"
#include "src/nn/grouped_adapters.h"

namespace hybrid_trainer {
namespace {

using kernels::GradientMode, kernels::GroupedRows;

/// Values of weights, held until this is destroyed.
struct HeldWeights {
  std::vector<Weight> weights;
  std::vector<Tensor> tensors;
  void hold(Weight weight) {
    const Tensor as = weight.tensor();
    hold(std::move(weight), as);
  }
  /// `as` is what is read of it.
  void hold(Weight weight, Tensor as) {
    tensors.push_back(std::move(as));
    weights.push_back(std::move(weight));
  }
};

}  // namespace

/// All groups: consecutive ones for which together(i) holds are one run, each other is its own.
template <class Together>
std::vector<GroupedLinear::Run> GroupedLinear::runs(const Together& together) const {
  std::vector<Run> all;
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    if (i > 0 && together(i) && together(i - 1)) {
      ++all.back().count;
    } else {
      all.push_back({i, 1});
    }
  }
  return all;
}

/// visit(run, weights) for all runs; the weights are held meanwhile. Rounded ones come one at a time,
/// as each takes memory.
template <class Visit>
void GroupedLinear::for_weights(DType dtype, const Pass& pass, const Stream& stream,
                                const Visit& visit) {
  const auto stays = [&](std::size_t i) {
    return pass.products == nullptr && linears_[i].weight().storage().stays(dtype, stream);
  };
  for (const Run& run : runs(stays)) {
    HeldWeights held;
    const auto hold = [&](std::size_t i) {
      Parameter& parameter = linears_[i].weight();
      Weight weight = parameter.acquire(dtype, stream);
      const Tensor as = product_operand(weight, Operand::kWeight, parameter, pass, stream);
      held.hold(std::move(weight), as);
    };
    for (std::size_t i = run.first; i < run.first + run.count; ++i) hold(i);
    visit(run, held.tensors);
  }
}

/// Rows of all groups are scaled alike.
Tensor GroupedLinear::operand(const Tensor& rows, Operand which, const Pass& pass,
                              const Stream& stream) const {
  return product_operand(rows, which, linears_.front().weight(), pass, stream);
}

Tensor GroupedLinear::forward(const Tensor& x, const RowsByGroup& groups, Wanted wanted,
                              const Pass& pass, const Stream& stream) {
  const Tensor& offsets = groups.offsets;
  Tensor y = Tensor::empty({x.size(0), shape()[0]}, x.dtype(), MemoryKind::kActivations, stream);
  const bool all_stay = std::ranges::all_of(linears_, [&](const Linear& linear) {
    return linear.weight().storage().stays(x.dtype(), stream);
  });
  const bool waits = wanted == Wanted::kWithRows && pass.products == nullptr;
  if (waits && !all_stay && !stream.device().simulated) {
    forward_with_rows(y, x, offsets, stream);
  } else {
    const Tensor from = operand(x, Operand::kInput, pass, stream);
    for_weights(x.dtype(), pass, stream, [&](const Run& run, const std::vector<Tensor>& weights) {
      HeldWeights biases;
      for (std::size_t i = run.first; i < run.first + run.count && linears_[i].bias(); ++i)
        biases.hold(linears_[i].acquire_bias(stream));
      kernels::grouped_forward(y, from, {offsets, static_cast<std::int64_t>(run.first)}, weights,
                               biases.tensors, GradientMode::kOverwrite, stream);
    });
    if (pass.products != nullptr) pass.products->round_result(y, stream);
  }
  GroupedAdapters(linears_, groups, pass, stream).add_to(y, x);
  return y;
}

/// Only the maps of groups with rows, one at a time.
void GroupedLinear::forward_with_rows(const Tensor& y, const Tensor& x, const Tensor& offsets,
                                      const Stream& stream) {
  const Tensor here = wait_for_host(offsets, stream);
  const std::int32_t* const bounds = here.data<std::int32_t>();
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    const std::int64_t begin = bounds[i], end = bounds[i + 1];
    if (begin == end) continue;
    const Weight bias = linears_[i].acquire_bias(stream);
    const Tensor rows = y.rows(begin, end), from = x.rows(begin, end);
    if (linears_[i].weight().storage().multiply(rows, from, bias, Tensor{}, stream)) continue;
    const Weight weight = linears_[i].weight().acquire(x.dtype(), stream);
    const std::span<const Tensor> biases =
        bias.tensor() ? std::span(&bias.tensor(), 1) : std::span<const Tensor>();
    kernels::grouped_forward(y, x, {offsets, static_cast<std::int64_t>(i)}, {&weight.tensor(), 1},
                             biases, GradientMode::kOverwrite, stream);
  }
}

Tensor GroupedLinear::backward_input(const Tensor& dy, const RowsByGroup& groups, const Pass& pass,
                                     const Stream& stream) {
  Tensor dx = Tensor::empty({dy.size(0), shape()[1]}, dy.dtype(), MemoryKind::kActivations, stream);
  const Tensor from = operand(dy, Operand::kGradient, pass, stream);
  for_weights(dy.dtype(), pass, stream, [&](const Run& run, const std::vector<Tensor>& weights) {
    kernels::grouped_backward_input(dx, from,
                                    {groups.offsets, static_cast<std::int64_t>(run.first)}, weights,
                                    GradientMode::kOverwrite, stream);
  });
  if (pass.products != nullptr) pass.products->round_result(dx, stream);
  GroupedAdapters(linears_, groups, pass, stream).add_input_gradient(dx, dy);
  return dx;
}

bool GroupedLinear::learns() {
  return std::ranges::any_of(linears_, [](Linear& linear) {
    return linear.weight().trainable() || linear.adapter() != nullptr;
  });
}

void GroupedLinear::contribute(const Tensor& dy, const Tensor& x, const Tensor& factors,
                               const RowsByGroup& groups, const Pass& pass, const Stream& stream) {
  contribute_weights(dy, x, groups.offsets, pass, stream);
  contribute_biases(dy, factors, groups.offsets, stream);
  GroupedAdapters(linears_, groups, pass, stream).contribute(dy, x);
}

void GroupedLinear::contribute_weights(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                       const Pass& pass, const Stream& stream) {
  if (!linears_.front().weight().trainable()) return;
  const Tensor gradient = operand(dy, Operand::kGradient, pass, stream),
               from = operand(x, Operand::kInput, pass, stream);
  const auto stays = [&](std::size_t i) { return linears_[i].weight().gradient_stays(); };
  for (const Run& run : runs(stays)) {
    std::deque<GradientContribution> contributions;
    std::vector<Tensor> dw;
    GradientMode mode = GradientMode::kOverwrite;
    for (std::size_t i = run.first; i < run.first + run.count; ++i) {
      contributions.emplace_back(linears_[i].weight(), stream, true, dy.dtype());
      mode = contributions.back().next_mode();
      dw.push_back(contributions.back().gradient());
    }
    kernels::grouped_backward_weight(dw, gradient, from,
                                     {offsets, static_cast<std::int64_t>(run.first)}, mode, stream);
  }
}

void GroupedLinear::contribute_biases(const Tensor& dy, const Tensor& factors,
                                      const Tensor& offsets, const Stream& stream) {
  if (linears_.front().bias() == nullptr || !linears_.front().bias()->trainable()) return;
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    GradientContribution dbias(*linears_[i].bias(), stream);
    kernels::grouped_bias_backward({&dbias.gradient(), 1}, dy, factors,
                                   {offsets, static_cast<std::int64_t>(i)}, dbias.next_mode(),
                                   stream);
  }
}

}  // namespace hybrid_trainer
