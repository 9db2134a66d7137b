#include <algorithm>
#include <deque>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/experts.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

namespace {

using kernels::GradientMode, kernels::GroupedRows;

struct HeldWeights {
  std::vector<Weight> weights;
  std::vector<Tensor> tensors;
  void hold(Weight weight) {
    const Tensor as = weight.tensor();
    hold(std::move(weight), as);
  }
  /// Holds a weight. `as` has its values in the form that products read.
  void hold(Weight weight, Tensor as) {
    tensors.push_back(std::move(as));
    weights.push_back(std::move(weight));
  }
};

/// Adapters of several linear maps, each for the rows of its group. Consecutive maps with adapters
/// are computed together. All have the same rank and dropout, and no magnitudes.
class GroupedAdapters {
 public:
  GroupedAdapters(std::vector<Linear>& linears, const RowsByGroup& groups, const Pass& pass,
                  const Stream& stream)
      : linears_(linears), groups_(groups), pass_(pass), stream_(stream) {}
  void add_to(const Tensor& y, const Tensor& x) const {
    for_runs([&](const Run& run) {
      const Tensor u = reduced(run, adapter(run.first).dropped(x, pass_, stream_, groups_.rows));
      kernels::grouped_forward(y, u, rows_of(run), wide_b(run, x.dtype()), {},
                               GradientMode::kAccumulate, stream_);
    });
  }
  void add_input_gradient(const Tensor& dx, const Tensor& dy) const {
    for_runs([&](const Run& run) {
      const Tensor du = gradient_of_reduced(run, dy);
      HeldWeights a;
      for (std::size_t i = run.first; i < run.first + run.count; ++i)
        a.hold(adapter(i).a().acquire(dx.dtype(), stream_));
      const GroupedRows rows = rows_of(run);
      const AdapterSpec& spec = adapter(run.first).spec();
      if (spec.dropout == 0 || !pass_.training)
        return kernels::grouped_backward_input(dx, du, rows, a.tensors, GradientMode::kAccumulate,
                                               stream_);
      const Tensor dropped = Tensor::zeros(dx.shape(), dx.dtype(), MemoryKind::kWorkspace, stream_);
      kernels::grouped_backward_input(dropped, du, rows, a.tensors, GradientMode::kOverwrite,
                                      stream_);
      apply_dropout(dropped, static_cast<float>(spec.dropout), pass_, spec.site, stream_,
                    groups_.rows);
      kernels::add(dx, dx, dropped, stream_);
    });
  }
  void contribute(const Tensor& dy, const Tensor& x) const {
    for_runs([&](const Run& run) {
      const LowRankAdapter& first = adapter(run.first);
      const Tensor input = first.dropped(x, pass_, stream_, groups_.rows), u = reduced(run, input),
                   du = gradient_of_reduced(run, dy);
      const GroupedRows rows = rows_of(run);
      const Shape wide{dy.size(1), first.blocks().columns()};
      std::deque<GradientContribution> of_a, of_b;
      std::vector<Tensor> da, dwide;
      GradientMode mode = GradientMode::kOverwrite;
      for (std::size_t i = run.first; i < run.first + run.count; ++i) {
        of_b.emplace_back(adapter(i).b(), stream_);
        of_a.emplace_back(adapter(i).a(), stream_);
        mode = of_a.back().next_mode();
        da.push_back(of_a.back().gradient());
        dwide.push_back(Tensor::empty(wide, DType::kF32, MemoryKind::kWorkspace, stream_));
      }
      kernels::grouped_backward_weight(da, du, input, rows, mode, stream_);
      kernels::grouped_backward_weight(dwide, dy, u, rows, GradientMode::kOverwrite, stream_);
      for (std::size_t i = 0; i < run.count; ++i)
        kernels::gather_blocks(of_b[i].gradient(), dwide[i], first.blocks(),
                               static_cast<float>(first.spec().scale), of_b[i].next_mode(),
                               stream_);
    });
  }

 private:
  struct Run {
    std::size_t first, count;
  };
  template <class Visit>
  void for_runs(const Visit& visit) const {
    for (std::size_t first = 0; first < linears_.size();) {
      std::size_t end = first;
      while (end < linears_.size() && linears_[end].adapter() != nullptr) ++end;
      if (end > first) visit(Run{first, end - first});
      first = end + 1;
    }
  }
  LowRankAdapter& adapter(std::size_t i) const { return *linears_[i].adapter(); }
  kernels::GroupedRows rows_of(const Run& run) const {
    return {groups_.offsets, static_cast<std::int64_t>(run.first)};
  }
  std::vector<Tensor> wide_b(const Run& run, DType dtype) const {
    std::vector<Tensor> all;
    for (std::size_t i = run.first; i < run.first + run.count; ++i)
      all.push_back(adapter(i).wide_b(dtype, stream_));
    return all;
  }
  /// Returns x·Aᵀ, (R, parts·r).
  Tensor reduced(const Run& run, const Tensor& x) const {
    HeldWeights a;
    for (std::size_t i = run.first; i < run.first + run.count; ++i)
      a.hold(adapter(i).a().acquire(x.dtype(), stream_));
    Tensor u = Tensor::empty({x.size(0), adapter(run.first).blocks().columns()}, x.dtype(),
                             MemoryKind::kWorkspace, stream_);
    kernels::grouped_forward(u, x, rows_of(run), a.tensors, {}, GradientMode::kOverwrite, stream_);
    return u;
  }
  Tensor gradient_of_reduced(const Run& run, const Tensor& dy) const {
    Tensor du = Tensor::empty({dy.size(0), adapter(run.first).blocks().columns()}, dy.dtype(),
                              MemoryKind::kWorkspace, stream_);
    kernels::grouped_backward_input(du, dy, rows_of(run), wide_b(run, dy.dtype()),
                                    GradientMode::kOverwrite, stream_);
    return du;
  }

  std::vector<Linear>& linears_;
  const RowsByGroup& groups_;
  const Pass& pass_;
  const Stream& stream_;
};

}  // namespace

/// Splits the groups into runs. A run is a sequence of groups with together(i), or one other group.
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

/// Calls visit(run, weights) for all runs while the weights are acquired. If products are rounded,
/// each run has only one group, because each rounded weight needs memory.
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

/// Rounds the rows of all groups with one scale.
Tensor GroupedLinear::operand(const Tensor& rows, Operand which, const Pass& pass,
                              const Stream& stream) const {
  return product_operand(rows, which, linears_.front().weight(), pass, stream);
}

Tensor GroupedLinear::forward(const Tensor& x, const RowsByGroup& groups, GroupSelection wanted,
                              const Pass& pass, const Stream& stream) {
  const Tensor& offsets = groups.offsets;
  Tensor y = Tensor::empty({x.size(0), shape()[0]}, x.dtype(), MemoryKind::kActivations, stream);
  const bool all_stay = std::ranges::all_of(linears_, [&](const Linear& linear) {
    return linear.weight().storage().stays(x.dtype(), stream);
  });
  const bool waits = wanted == GroupSelection::kWithRows && pass.products == nullptr;
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

/// Acquires only the maps of groups with rows, one at a time.
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
  const auto stays = [&](std::size_t i) { return linears_[i].weight().has_gradient_memory(); };
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
