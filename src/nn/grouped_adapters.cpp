#include "src/nn/grouped_adapters.h"

#include <deque>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/grouped_product.h"
#include "hybrid_trainer/nn/dropout.h"

namespace hybrid_trainer {
namespace {

using kernels::GradientMode;

/// The matrices A of several adapters, held until this is destroyed.
struct HeldMatrices {
  std::vector<Weight> weights;
  std::vector<Tensor> tensors;
  void hold(Weight weight) {
    tensors.push_back(weight.tensor());
    weights.push_back(std::move(weight));
  }
};

}  // namespace

template <class Visit>
void GroupedAdapters::for_runs(const Visit& visit) const {
  for (std::size_t first = 0; first < linears_.size();) {
    std::size_t end = first;
    while (end < linears_.size() && linears_[end].adapter() != nullptr) ++end;
    if (end > first) visit(Run{first, end - first});
    first = end + 1;
  }
}

std::vector<Tensor> GroupedAdapters::wide_b(const Run& run, DType dtype) const {
  std::vector<Tensor> all;
  for (std::size_t i = run.first; i < run.first + run.count; ++i)
    all.push_back(adapter(i).wide_b(dtype, stream_));
  return all;
}

/// x·Aᵀ, (R, parts·r).
Tensor GroupedAdapters::reduced(const Run& run, const Tensor& x) const {
  HeldMatrices a;
  for (std::size_t i = run.first; i < run.first + run.count; ++i)
    a.hold(adapter(i).a().acquire(x.dtype(), stream_));
  Tensor u = Tensor::empty({x.size(0), adapter(run.first).blocks().columns()}, x.dtype(),
                           MemoryKind::kWorkspace, stream_);
  kernels::grouped_forward(u, x, rows_of(run), a.tensors, {}, GradientMode::kOverwrite, stream_);
  return u;
}

Tensor GroupedAdapters::gradient_of_reduced(const Run& run, const Tensor& dy) const {
  Tensor du = Tensor::empty({dy.size(0), adapter(run.first).blocks().columns()}, dy.dtype(),
                            MemoryKind::kWorkspace, stream_);
  kernels::grouped_backward_input(du, dy, rows_of(run), wide_b(run, dy.dtype()),
                                  GradientMode::kOverwrite, stream_);
  return du;
}

void GroupedAdapters::add_to(const Tensor& y, const Tensor& x) const {
  for_runs([&](const Run& run) {
    const Tensor u = reduced(run, adapter(run.first).dropped(x, pass_, stream_, groups_.rows));
    kernels::grouped_forward(y, u, rows_of(run), wide_b(run, x.dtype()), {},
                             GradientMode::kAccumulate, stream_);
  });
}

void GroupedAdapters::add_input_gradient(const Tensor& dx, const Tensor& dy) const {
  for_runs([&](const Run& run) {
    const Tensor du = gradient_of_reduced(run, dy);
    HeldMatrices a;
    for (std::size_t i = run.first; i < run.first + run.count; ++i)
      a.hold(adapter(i).a().acquire(dx.dtype(), stream_));
    const kernels::GroupedRows rows = rows_of(run);
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

void GroupedAdapters::contribute(const Tensor& dy, const Tensor& x) const {
  for_runs([&](const Run& run) {
    const LowRankAdapter& first = adapter(run.first);
    const Tensor input = first.dropped(x, pass_, stream_, groups_.rows), u = reduced(run, input),
                 du = gradient_of_reduced(run, dy);
    const kernels::GroupedRows rows = rows_of(run);
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
                             static_cast<float>(first.spec().scale), of_b[i].next_mode(), stream_);
  });
}

}  // namespace hybrid_trainer
