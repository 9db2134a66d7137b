#pragma once

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer::graph {

/// The same numbers of each example in another shape. Has no parameters.
class Reshape final : public Module {
 public:
  /// `example`: with a first dimension of 1.
  explicit Reshape(const Shape& example) : example_(example) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Returns a view of dy.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  Shape example_;
};

/// One of the tokens (B, N, C), as (B, C).
class OneToken final : public Module {
 public:
  explicit OneToken(std::int64_t index) : index_(index) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  std::int64_t index_;
};

/// (B, count + N, C) from (B, N, C): learnt tokens come first, "<name>.weight" (count, C).
class ClassTokens final : public Module {
 public:
  ClassTokens(const ModuleName& name, std::int64_t count, std::int64_t width, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(tokens_); }

 private:
  Parameter tokens_;
};

/// (B, places, C) plus a row for each place, "<name>.weight" (places, C), which is learnt or a frozen one
/// of sines and cosines.
class PositionTable final : public Module {
 public:
  enum class Rows { kLearnt, kSinusoids };
  PositionTable(const ModuleName& name, std::int64_t places, std::int64_t width, Rows rows,
                const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(rows_); }

 private:
  Parameter rows_;
};

/// (B, N, C) in the pass's dtype from tokens (B, N) i32, or (B, C) from (B): rows of "<name>.weight"
/// (vocabulary, C).
class TokenTable final : public Module {
 public:
  TokenTable(const ModuleName& name, std::int64_t vocabulary, std::int64_t width,
             const Stream& stream);
  Tensor forward(const Tensor& tokens, ActivationTape& tape, const Stream& stream) override;
  /// Returns nothing: tokens have no gradient.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(table_); }

 private:
  Parameter table_;
};

/// The shape with so many examples.
inline Shape with_examples(const Shape& example, std::int64_t count) {
  Shape shape{count};
  for (int i = 1; i < example.rank(); ++i) shape.append(example[i]);
  return shape;
}

}  // namespace hybrid_trainer::graph
