#include "hybrid_trainer/nn/linear.h"

#include <algorithm>

#include "hybrid_trainer/nn/product_rounding.h"
#include "kernels/products/weight_decomposition.h"

namespace hybrid_trainer {

namespace {

kernels::DiagonalBlocks blocks_of(const std::vector<AdapterPart>& parts, std::int64_t rank) {
  require(parts.size() <= kernels::DiagonalBlocks::kMax, "the adapter has too many parts");
  kernels::DiagonalBlocks blocks{.count = static_cast<int>(parts.size()), .rank = rank};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    blocks.first_row[p] = parts[p].first_row;
    blocks.rows[p] = parts[p].rows;
  }
  return blocks;
}

Shape with_last(const Shape& shape, std::int64_t last) {
  Shape other;
  for (int i = 0; i + 1 < shape.rank(); ++i) other.append(shape[i]);
  other.append(last);
  return other;
}

/// Calls visit(rows of the outputs, rows of the bias), both tensors, for each range with a bias.
template <class Visit>
void for_bias_ranges(const BiasRows& bias, const Tensor& of_outputs, const Tensor& of_bias,
                     const Visit& visit) {
  std::int64_t at = 0;
  for (const auto [begin, end] : bias.ranges) {
    visit(of_outputs.rows(begin, end), of_bias.rows(at, at + end - begin));
    at += end - begin;
  }
}

}  // namespace

bool belongs_to_adapter(const Parameter& parameter) {
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

Tensor LowRankAdapter::dropped(const Tensor& x, const Pass& pass, const Stream& stream,
                               const TokenRows& rows) const {
  if (spec_.dropout == 0 || !pass.training) return x;
  Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  copy(y, x, stream);
  apply_dropout(y, static_cast<float>(spec_.dropout), pass, spec_.site, stream, rows);
  return y;
}

Tensor LowRankAdapter::wide_b(DType dtype, const Stream& stream) const {
  Tensor wide = Tensor::empty({outputs_, blocks_.columns()}, dtype, MemoryKind::kWorkspace, stream);
  kernels::spread_blocks(wide, b_.acquire_master(stream), blocks_, static_cast<float>(spec_.scale),
                         stream);
  return wide;
}

/// Returns x·Aᵀ, (N, parts·r).
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

std::int64_t BiasRows::count(RowRange rows) const {
  if (!exists || ranges.empty()) return exists ? rows.end - rows.begin : 0;
  std::int64_t count = 0;
  for (const auto [begin, end] : ranges)
    count += std::max<std::int64_t>(0, std::min(end, rows.end) - std::max(begin, rows.begin));
  return count;
}

Linear::Linear(const ModuleName& name, std::int64_t inputs, std::int64_t outputs,
               const Stream& stream, const BiasRows& bias, Role role)
    : weight_(name / "weight", {outputs, inputs}, role, stream), bias_rows_(bias) {
  if (bias.exists)
    bias_.emplace(name / "bias", Shape{bias.count({0, outputs})}, Role::kVector, stream);
}

Weight Linear::acquire_bias(const Stream& stream) const {
  if (!bias_) return {};
  Weight held = bias_->acquire_master(stream);
  if (bias_rows_.ranges.empty()) return held;
  const Tensor all =
      Tensor::zeros({weight_.shape()[0]}, DType::kF32, MemoryKind::kWorkspace, stream);
  for_bias_ranges(bias_rows_, all, held, [&](const Tensor& outputs, const Tensor& values) {
    copy(outputs, values, stream);
  });
  return Weight(all);
}

TokenFlops Linear::flops() const {
  const auto weights = static_cast<double>(weight_.elements());
  const auto adapted =
      static_cast<double>(adapter_ ? adapter_->a().elements() + adapter_->b().elements() : 0);
  return {.forward = 2 * (weights + adapted),
          .backward = (weight_.trainable() ? 4 : 2) * weights + 4 * adapted};
}

void Linear::set_in_files(const std::vector<std::string>& modules,
                          const std::vector<std::int64_t>& rows, bool transposed,
                          const std::vector<RowGroups>& orders) {
  const std::int64_t inputs = weight_.shape()[1];
  std::vector<FileTensor> weights, biases;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::int64_t biased = bias_rows_.count({begin, begin + rows[i]});
    begin += rows[i];
    const RowGroups order = i < orders.size() ? orders[i] : RowGroups{};
    const Shape shape = transposed ? Shape{inputs, rows[i]} : Shape{rows[i], inputs};
    weights.push_back(
        {.name = modules[i] + ".weight", .shape = shape, .transposed = transposed, .order = order});
    if (biased == 0) continue;
    require(biased == rows[i], "linear map: want biases for all rows of a module, or for none");
    biases.push_back({.name = modules[i] + ".bias", .shape = {rows[i]}, .order = order});
  }
  weight_.set_in_files(std::move(weights));
  if (bias_) bias_->set_in_files(std::move(biases));
}

Tensor Linear::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                       const Stream& stream) {
  Tensor y = product(x, residual, tape.pass(), stream);
  tape.save({ActivationRole::kProductInput, kept(x), true}, stream);
  return y;
}

Tensor Linear::product(const Tensor& x, const Tensor& residual, const Pass& pass,
                       const Stream& stream) {
  Tensor y = Tensor::empty(with_last(x.shape(), weight_.shape()[0]), x.dtype(),
                           MemoryKind::kActivations, stream);
  const Tensor rows = y.as_rows();
  multiply(rows, x.as_rows(), residual.as_rows(), pass, stream);
  if (adapter_) adapter_->add_to(rows, x.as_rows(), pass, stream);
  if (decomposes())
    kernels::scale_columns(rows, rows, adapter_->row_factors(weight_, stream).factors,
                           acquire_bias(stream), residual.as_rows(), stream);
  return y;
}

/// Computes y = x·wᵀ + bias + residual (added after rounding) or, if decomposed, the product.
void Linear::multiply(const Tensor& y, const Tensor& x, const Tensor& residual, const Pass& pass,
                      const Stream& stream) {
  const Weight bias = decomposes() ? Weight{} : acquire_bias(stream);
  const Tensor added = decomposes() ? Tensor{} : residual;
  if (pass.products == nullptr) {
    const bool is_done = !pass.training && weight_.storage().multiply(y, x, bias, added, stream);
    if (!is_done)
      kernels::linear_forward(y, x, weight_.acquire(x.dtype(), stream), bias, added, stream);
    return;
  }
  const ProductRounding& products = *pass.products;
  const bool adds_later = products.rounds_results();
  kernels::linear_forward(
      y, products.rounded(x, Operand::kInput, weight_, pass, stream),
      products.rounded(weight_.acquire(x.dtype(), stream), Operand::kWeight, weight_, pass, stream),
      bias, adds_later ? Tensor{} : added, stream);
  products.round_result(y, stream);
  if (adds_later && added) kernels::add(y, y, added, stream);
}

Tensor Linear::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  const LinearGradients gradients(*this, dy.as_rows(), x.as_rows(), tape.pass(), stream);
  Tensor dx = Tensor::empty(with_last(dy.shape(), weight_.shape()[1]), dy.dtype(),
                            MemoryKind::kActivations, stream);
  gradients.write_input_gradient(dx.as_rows());
  return dx;
}

void Linear::backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  const LinearGradients gradients(*this, dy.as_rows(), x.as_rows(), tape.pass(), stream);
}

/// Returns the gradient of the product, which the magnitudes scale. Recomputes the product for the
/// gradient of the magnitudes.
Tensor Linear::before_magnitudes(const Tensor& dy, const Tensor& x, const Pass& pass,
                                 const Stream& stream) {
  const LowRankAdapter::RowFactors rows = adapter_->row_factors(weight_, stream);
  Tensor z = Tensor::empty_like(dy, MemoryKind::kWorkspace, stream);
  multiply(z, x, Tensor{}, pass, stream);
  adapter_->add_to(z, x, pass, stream);
  adapter_->contribute_magnitudes(z, dy, rows, stream);
  kernels::scale_columns(z, dy, rows.factors, Tensor{}, Tensor{}, stream);
  return z;
}

LinearGradients::LinearGradients(Linear& linear, const Tensor& dy, const Tensor& x,
                                 const Pass& pass, const Stream& stream)
    : linear_(linear),
      dy_(dy),
      pass_(pass),
      stream_(stream),
      dweight_(linear.weight_, stream, true, dy.dtype()),
      dbias_(linear.bias_ ? *linear.bias_ : linear.weight_, stream, linear.bias_.has_value()) {
  round_gradient();
  write_parameter_gradients(x);
  if (linear.decomposes()) {
    dy_ = linear.before_magnitudes(dy, x, pass, stream);
    round_gradient();
  }
  if (linear.adapter_) adapter_.emplace(*linear.adapter_, dy_, x, pass, stream);
}

void LinearGradients::round_gradient() {
  product_dy_ = product_operand(dy_, Operand::kGradient, linear_.weight_, pass_, stream_);
}

void LinearGradients::write_parameter_gradients(const Tensor& x) {
  const bool both = dweight_.wanted() && dbias_.wanted();
  const auto mode_of = [](GradientContribution& of) {
    return of.wanted() ? of.next_mode() : kernels::GradientMode::kOverwrite;
  };
  const kernels::GradientMode mode = mode_of(dweight_), bias_mode = mode_of(dbias_);
  const bool together = both && mode == bias_mode && linear_.bias_rows_.ranges.empty();
  if (together && pass_.products == nullptr) {
    kernels::linear_backward_parameters(dweight_.gradient(), dbias_.gradient(), dy_, x, mode,
                                        stream_);
    return;
  }
  if (dweight_.wanted())
    kernels::linear_backward_weight(
        dweight_.gradient(), product_dy_,
        product_operand(x, Operand::kInput, linear_.weight_, pass_, stream_), mode, stream_);
  if (dbias_.wanted()) write_bias_gradient(bias_mode);
}

void LinearGradients::write_bias_gradient(kernels::GradientMode mode) {
  if (linear_.bias_rows_.ranges.empty())
    return kernels::bias_backward(dbias_.gradient(), dy_, mode, stream_);
  const Tensor all = Tensor::empty({dy_.size(1)}, DType::kF32, MemoryKind::kWorkspace, stream_);
  kernels::bias_backward(all, dy_, kernels::GradientMode::kOverwrite, stream_);
  const auto take = [&](const Tensor& outputs, const Tensor& gradient) {
    if (mode == kernels::GradientMode::kOverwrite) return copy(gradient, outputs, stream_);
    kernels::add(gradient, gradient, outputs, stream_);
  };
  for_bias_ranges(linear_.bias_rows_, all, dbias_.gradient(), take);
}

void LinearGradients::write_input_gradient(const Tensor& dx) const {
  const Weight weight = linear_.weight_.acquire(dy_.dtype(), stream_);
  kernels::linear_backward_input(
      dx, product_dy_, product_operand(weight, Operand::kWeight, linear_.weight_, pass_, stream_),
      stream_);
  if (pass_.products != nullptr) pass_.products->round_result(dx, stream_);
  if (adapter_) adapter_->add_input_gradient(dx);
}

void Linear::set_adapter(std::vector<AdapterPart> parts, const AdapterSpec& spec,
                         const Stream& stream) {
  const std::string& name = weight_.name();
  adapter_ = std::make_unique<LowRankAdapter>(name.substr(0, name.rfind('.')), weight_.shape()[1],
                                              weight_.shape()[0], std::move(parts), spec, stream);
}

void Linear::visit_parameters(const ParameterVisitor& visit) {
  visit(weight_);
  if (bias_) visit(*bias_);
  if (adapter_) adapter_->visit_parameters(visit);
}

}  // namespace hybrid_trainer
