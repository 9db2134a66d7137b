#include "src/nn/token_modules.h"

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer::graph {
namespace {

/// All numbers of an example as a row.
Tensor example_rows(const Tensor& x) { return x.view({x.size(0), x.elements() / x.size(0)}); }

}  // namespace

Tensor Reshape::forward(const Tensor& x, ActivationTape& tape, const Stream&) {
  tape.save_shape(x.shape());
  return x.view(with_examples(example_, x.size(0)));
}

Tensor Reshape::backward(const Tensor& dy, ActivationTape& tape, const Stream&) {
  return dy.view(tape.take_shape());
}

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
  if (rows == Rows::kLearnt) return;
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
