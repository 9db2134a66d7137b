#include "hybrid_trainer/nn/low_rank_adapter.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/weight_decomposition.h"

namespace hybrid_trainer {
namespace {

kernels::DiagonalBlocks blocks_of(const std::vector<AdapterPart>& parts, std::int64_t rank) {
  require(parts.size() <= kernels::DiagonalBlocks::kMost, "an adapter of too many parts");
  kernels::DiagonalBlocks blocks{.count = static_cast<int>(parts.size()), .rank = rank};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    blocks.first_row[p] = parts[p].first_row;
    blocks.rows[p] = parts[p].rows;
  }
  return blocks;
}

}  // namespace

bool is_of_adapter(const Parameter& parameter) {
  return parameter.name().find(".lora_") != std::string::npos;
}

LowRankAdapter::LowRankAdapter(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                               std::vector<AdapterPart> parts, const AdapterSpec& spec,
                               const Stream& stream)
    : outputs_(outputs),
      parts_(std::move(parts)),
      spec_(spec),
      blocks_(blocks_of(parts_, spec.rank)),
      a_(name + ".lora_A", {blocks_.columns(), inputs}, Role::kMatrix, stream),
      b_(name + ".lora_B", {blocks_.stacked_rows(), spec.rank}, Role::kMatrix, stream) {
  if (!spec.decomposed) return;
  magnitude_.emplace(name + ".lora_magnitude_vector", Shape{blocks_.stacked_rows()}, Role::kVector,
                     stream);
}

void LowRankAdapter::visit_parameters(const ParameterVisitor& visit) {
  visit(a_);
  visit(b_);
  if (magnitude_) visit(*magnitude_);
}

Tensor LowRankAdapter::dropped(const Tensor& x, const Pass& pass, const Stream& stream,
                               const TokenRows& rows) const {
  if (spec_.dropout == 0 || !pass.training) return x;
  Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  copy(y, x, stream);
  apply_dropout(y, static_cast<float>(spec_.dropout), pass, spec_.site, stream, rows);
  return y;
}

/// scale·B as the (outputs, parts·r) that the parts' products side by side are multiplied with.
Tensor LowRankAdapter::wide_b(DType dtype, const Stream& stream) const {
  Tensor wide = Tensor::empty({outputs_, blocks_.columns()}, dtype, MemoryKind::kWorkspace, stream);
  kernels::spread_blocks(wide, b_.acquire_master(stream), blocks_, static_cast<float>(spec_.scale),
                         stream);
  return wide;
}

/// x·Aᵀ, (N, parts·r).
Tensor LowRankAdapter::reduced(const Tensor& x, const Stream& stream) const {
  Tensor u =
      Tensor::empty({x.size(0), blocks_.columns()}, x.dtype(), MemoryKind::kWorkspace, stream);
  kernels::linear_forward(u, x, a_.acquire(x.dtype(), stream), Tensor{}, Tensor{}, stream);
  return u;
}

void LowRankAdapter::add_to(const Tensor& y, const Tensor& x, const Pass& pass,
                            const Stream& stream) {
  const Tensor u = reduced(dropped(x, pass, stream), stream);
  kernels::linear_forward(y, u, wide_b(x.dtype(), stream), Tensor{}, y, stream);
}

void LowRankAdapter::merge_into(const Tensor& w, const Stream& stream) {
  add_product(w, stream);
  if (!decomposes()) return;
  const Tensor factors = wait_for_host(row_factors(w, stream).factors, stream);
  for (std::int64_t row = 0; row < outputs_; ++row) {
    const Tensor values = w.rows(row, row + 1);
    kernels::scale(values, values, factors.data<float>()[row], stream);
  }
}

void LowRankAdapter::start_magnitudes(const Parameter& weight, const Stream& stream) {
  const Tensor norms = Tensor::empty({outputs_}, DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::row_norms(norms, weight.acquire_master(stream), stream);
  kernels::gather_rows(magnitude_->acquire_master(stream, Use::kWrite), norms, Tensor{}, blocks_,
                       kernels::GradientMode::kOverwrite, stream);
}

LowRankAdapter::RowFactors LowRankAdapter::row_factors(const Parameter& weight,
                                                       const Stream& stream) const {
  const Tensor merged = Tensor::empty(weight.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
  copy(merged, weight.acquire_master(stream), stream);
  add_product(merged, stream);
  return row_factors(merged, stream);
}

LowRankAdapter::RowFactors LowRankAdapter::row_factors(const Tensor& merged,
                                                       const Stream& stream) const {
  const auto row = [&] {
    return Tensor::empty({outputs_}, DType::kF32, MemoryKind::kWorkspace, stream);
  };
  RowFactors rows{row(), row()};
  kernels::row_norms(rows.norms, merged, stream);
  kernels::magnitude_factors(rows.factors, magnitude_->acquire_master(stream), rows.norms, blocks_,
                             stream);
  return rows;
}

void LowRankAdapter::contribute_magnitudes(const Tensor& z, const Tensor& dy,
                                           const RowFactors& rows, const Stream& stream) {
  GradientContribution dmagnitude(*magnitude_, stream);
  if (!dmagnitude.wanted()) return;
  const Tensor sums = Tensor::empty({outputs_}, DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::multiply(z, z, dy, stream);
  kernels::bias_backward(sums, z, kernels::GradientMode::kOverwrite, stream);
  kernels::gather_rows(dmagnitude.gradient(), sums, rows.norms, blocks_, dmagnitude.next_mode(),
                       stream);
}

void LowRankAdapter::add_product(const Tensor& w, const Stream& stream) const {
  kernels::matmul(w, wide_b(DType::kF32, stream), kernels::Transpose::kNo,
                  a_.acquire_master(stream), kernels::Transpose::kNo,
                  kernels::GradientMode::kAccumulate, stream);
}

AdapterGradients::AdapterGradients(LowRankAdapter& adapter, const Tensor& dy, const Tensor& x,
                                   const Pass& pass, const Stream& stream)
    : adapter_(adapter),
      pass_(pass),
      stream_(stream),
      da_(adapter.a_, stream),
      db_(adapter.b_, stream) {
  const Tensor input = adapter.dropped(x, pass, stream), u = adapter.reduced(input, stream);
  if (db_.wanted()) {
    const Tensor dwide = Tensor::empty({adapter.outputs_, adapter.blocks_.columns()}, DType::kF32,
                                       MemoryKind::kWorkspace, stream);
    kernels::linear_backward_weight(dwide, dy, u, kernels::GradientMode::kOverwrite, stream);
    kernels::gather_blocks(db_.gradient(), dwide, adapter.blocks_,
                           static_cast<float>(adapter.spec_.scale), db_.next_mode(), stream);
  }
  dreduced_ = u;  // reuses the memory after its last read
  kernels::linear_backward_input(dreduced_, dy, adapter.wide_b(dy.dtype(), stream), stream);
  if (da_.wanted())
    kernels::linear_backward_weight(da_.gradient(), dreduced_, input, da_.next_mode(), stream);
}

void AdapterGradients::add_input_gradient(const Tensor& dx) const {
  using kernels::GradientMode, kernels::Transpose;
  const Weight a = adapter_.a_.acquire(dx.dtype(), stream_);
  if (adapter_.spec_.dropout == 0 || !pass_.training) {
    return kernels::matmul(dx, dreduced_, Transpose::kNo, a, Transpose::kNo,
                           GradientMode::kAccumulate, stream_);
  }
  const Tensor dropped = Tensor::empty_like(dx, MemoryKind::kWorkspace, stream_);
  kernels::linear_backward_input(dropped, dreduced_, a, stream_);
  apply_dropout(dropped, static_cast<float>(adapter_.spec_.dropout), pass_, adapter_.spec_.site,
                stream_);
  kernels::add(dx, dx, dropped, stream_);
}

}  // namespace hybrid_trainer
