#include "src/nn/graph/modules.h"

#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer::graph {

Tensor Fragments::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Tensor y = module_->forward(cut(x), tape, stream);
  tape.save_shape(y.shape());
  const std::int64_t width = y.size(y.shape().rank() - 1);
  return y.view({x.size(0), y.elements() / x.size(0) / width, width});
}

Tensor Fragments::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const std::int64_t videos = dy.size(0);
  const Tensor dx = module_->backward(dy.view(tape.take_shape()), tape, stream);
  const Shape cut = dx.shape();
  return dx.view({videos, cut[0] * cut[1] / videos, cut[2], cut[3], cut[4]});
}

ModuleSequence::ModuleSequence(const ModuleName& name, const std::vector<ModuleMaker>& makers,
                               const Shape& input, bool adds_input, const Stream& stream)
    : adds_input_(adds_input) {
  if (makers.empty())
    throw ShapeMismatch(concat(name.here, " is an empty sequence, want at least one module"));
  Shape shape = input;
  for (const ModuleMaker& make : makers) {
    const ModuleName module = name / ModuleName(std::to_string(modules_.size()));
    outputs_.push_back(output_shape(make, module, shape));
    modules_.push_back(make(module, shape, stream));
    shape = outputs_.back();
  }
  if (adds_input && !(shape == input))
    throw ShapeMismatch(concat(name.here, ": its modules turn ", input.text(), " into ",
                               shape.text(),
                               ", want the same shape, because input and output are added"));
}

Tensor ModuleSequence::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = x;
  for (const auto& module : modules_) y = module->forward(y, tape, stream);
  if (!adds_input_) return y;
  // Allocates a new tensor for the sum, because the tape may keep the result of the last module.
  const Tensor sum = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::add(sum, x, y, stream);
  return sum;
}

Tensor ModuleSequence::backward(Tensor dy, bool requires_gradient, ActivationTape& tape,
                                const Stream& stream) {
  for (std::size_t i = modules_.size(); i-- > 1;) dy = modules_[i]->backward(dy, tape, stream);
  if (requires_gradient) return modules_.front()->backward(dy, tape, stream);
  modules_.front()->backward_parameters(dy, tape, stream);
  return {};
}

Tensor ModuleSequence::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  if (!adds_input_) return backward(dy, true, tape, stream);
  const Tensor own = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  copy(own, dy, stream);  // modules may overwrite it
  Tensor dx = backward(own, true, tape, stream);
  kernels::add(dx, dx, dy, stream);
  return dx;
}

TokenFlops ModuleSequence::flops(bool requires_gradient) {
  TokenFlops sum;
  for (std::size_t i = 0; i < modules_.size(); ++i)
    sum = sum + flops_of(*modules_[i], outputs_[i], requires_gradient || i > 0);
  return sum;
}

bool reads_tokens(const Module& module) {
  const auto* const sequence = dynamic_cast<const ModuleSequence*>(&module);
  return sequence != nullptr ? reads_tokens(sequence->first())
                             : dynamic_cast<const TokenTable*>(&module) != nullptr;
}

TokenFlops flops_of(Module& module, const Shape& output, bool requires_gradient) {
  if (auto* const sequence = dynamic_cast<ModuleSequence*>(&module))
    return sequence->flops(requires_gradient);
  if (auto* const fragments = dynamic_cast<Fragments*>(&module))
    return flops_of(fragments->module(), fragments->example(), requires_gradient);
  const auto places = static_cast<double>(output.elements() / output[output.rank() - 1]);
  TokenFlops sum;
  module.visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector || parameter.role() == Role::kEmbedding) return;
    const double product = 2 * places * static_cast<double>(parameter.elements());
    sum.forward += product;
    sum.backward += (parameter.trainable() ? product : 0) + (requires_gradient ? product : 0);
  });
  return sum;
}

namespace {

Tensor example_rows(const Tensor& x) { return x.view({x.size(0), x.elements() / x.size(0)}); }

}  // namespace

Tensor OneToken::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const std::int64_t width = x.size(2);
  tape.save_shape(x.shape());
  Tensor y = Tensor::empty({x.size(0), width}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({y, 0}, {example_rows(x), index_ * width}, width, stream);
  return y;
}

Tensor OneToken::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor dx = Tensor::zeros(tape.take_shape(), dy.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({example_rows(dx), index_ * dy.size(1)}, {dy, 0}, dy.size(1), stream);
  return dx;
}

ClassTokens::ClassTokens(const ModuleName& name, std::int64_t count, std::int64_t width,
                         const Stream& stream)
    : tokens_(name / "weight", {count, width}, Role::kEmbedding, stream) {}

Tensor ClassTokens::forward(const Tensor& x, ActivationTape&, const Stream& stream) {
  const std::int64_t batch = x.size(0), count = tokens_.shape()[0], width = x.size(2),
                     all = count + x.size(1), own = count * width;
  Tensor y = Tensor::empty({batch, all, width}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({example_rows(y), own}, {example_rows(x), 0}, x.size(1) * width, stream);
  const Weight held = tokens_.acquire(x.dtype(), stream);
  const Tensor rows = y.view({batch * all, width});
  for (std::int64_t i = 0; i < batch; ++i)
    copy(rows.rows(i * all, i * all + count), held.tensor(), stream);
  return y;
}

Tensor ClassTokens::backward(const Tensor& dy, ActivationTape&, const Stream& stream) {
  const std::int64_t batch = dy.size(0), count = tokens_.shape()[0], width = dy.size(2),
                     own = count * width, others = (dy.size(1) - count) * width;
  {
    GradientContribution dtokens(tokens_, stream);
    if (dtokens.wanted()) {
      const Tensor part = Tensor::empty({batch, own}, dy.dtype(), MemoryKind::kWorkspace, stream);
      kernels::copy_columns({part, 0}, {example_rows(dy), 0}, own, stream);
      kernels::bias_backward(dtokens.gradient().view({own}), part, dtokens.next_mode(), stream);
    }
  }
  Tensor dx = Tensor::empty({batch, dy.size(1) - count, width}, dy.dtype(),
                            MemoryKind::kActivations, stream);
  kernels::copy_columns({example_rows(dx), 0}, {example_rows(dy), own}, others, stream);
  return dx;
}

PositionTable::PositionTable(const ModuleName& name, std::int64_t places, std::int64_t width,
                             Rows rows, const Stream& stream)
    : rows_(name / "weight", {places, width}, Role::kEmbedding, stream) {
  if (rows == Rows::kLearned) return;
  rows_.freeze();
  initialize_sinusoids(rows_, stream);
}

Tensor PositionTable::forward(const Tensor& x, ActivationTape&, const Stream& stream) {
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const Weight held = rows_.acquire(x.dtype(), stream);
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    const auto example = [&](const Tensor& all) { return all.rows(i, i + 1).view(rows_.shape()); };
    kernels::add(example(y), example(x), held.tensor(), stream);
  }
  return y;
}

Tensor PositionTable::backward(const Tensor& dy, ActivationTape&, const Stream& stream) {
  GradientContribution drows(rows_, stream);
  if (drows.wanted())
    kernels::bias_backward(drows.gradient().view({rows_.elements()}), example_rows(dy),
                           drows.next_mode(), stream);
  return dy;
}

TokenTable::TokenTable(const ModuleName& name, std::int64_t vocabulary, std::int64_t width,
                       const Stream& stream)
    : table_(name / "weight", {vocabulary, width}, Role::kEmbedding, stream) {}

Tensor TokenTable::forward(const Tensor& tokens, ActivationTape& tape, const Stream& stream) {
  const std::int64_t width = table_.shape()[1];
  Shape shape = tokens.shape();
  shape.append(width);
  const Tensor rows = example_rows(tokens);
  Tensor y = Tensor::empty(shape, tape.pass().dtype, MemoryKind::kActivations, stream);
  const Weight held = table_.acquire(y.dtype(), stream);
  kernels::embedding_forward(y.view({rows.size(0), rows.size(1), width}), rows, held.tensor(),
                             Tensor{}, 0, stream);
  tape.save({ActivationRole::kStatistics, tokens}, stream);
  return y;
}

Tensor TokenTable::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor rows = example_rows(tape.take(stream));
  GradientContribution dtable(table_, stream);
  if (!dtable.wanted()) return {};
  const kernels::GradientMode mode = dtable.next_mode();
  kernels::embedding_backward(dtable.gradient(), mode, Tensor{}, mode,
                              dy.view({rows.size(0), rows.size(1), table_.shape()[1]}), rows,
                              stream);
  return {};
}

}  // namespace hybrid_trainer::graph
