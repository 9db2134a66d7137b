#pragma once

#include "hybrid_trainer/nn/graph_part.h"

namespace hybrid_trainer::graph {

inline Shape with_examples(const Shape& example, std::int64_t count) {
  Shape shape{count};
  for (int i = 1; i < example.rank(); ++i) shape.append(example[i]);
  return shape;
}

/// Splits videos (B, T, H, W, C) into fragments of `frames` frames for the inner module. Its
/// results (B·T/frames, …, D) become the videos' tokens (B, N, D).
class Fragments final : public Module {
 public:
  /// `example`: shape of the inner module's result for all fragments of one video.
  Fragments(std::int64_t frames, std::unique_ptr<Module> module, const Shape& example)
      : frames_(frames), module_(std::move(module)), example_(example) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    module_->backward_parameters(dy.view(tape.take_shape()), tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { module_->visit_linears(visit); }
  Module& module() { return *module_; }
  const Shape& example() const { return example_; }

 private:
  Tensor cut(const Tensor& x) const {
    const Shape whole = x.shape();
    return x.view({whole[0] * whole[1] / frames_, frames_, whole[2], whole[3], whole[4]});
  }
  std::int64_t frames_;
  std::unique_ptr<Module> module_;
  Shape example_;
};

/// Runs modules "<name>.0", "<name>.1", … in order. Adds x to the result if `adds_input` is set.
class ModuleSequence final : public Module {
 public:
  ModuleSequence(const ModuleName& name, const std::vector<ModuleMaker>& makers, const Shape& input,
                 bool adds_input, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    backward(dy, false, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    for (const auto& module : modules_) module->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override {
    for (const auto& module : modules_) module->visit_linears(visit);
  }
  TokenFlops flops(bool requires_gradient);
  const Module& first() const { return *modules_.front(); }

 private:
  Tensor backward(Tensor dy, bool requires_gradient, ActivationTape& tape, const Stream& stream);
  bool adds_input_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<Shape> outputs_;  // output of each module, for one example
};

/// Returns whether the module reads i32 tokens, as a table does, and not activations.
bool reads_tokens(const Module& module);

/// Returns the FLOPs per example with result `output`: two per weight, position and product.
TokenFlops flops_of(Module& module, const Shape& output, bool requires_gradient);

/// Reshapes each example. Has no parameters.
class Reshape final : public Module {
 public:
  explicit Reshape(const Shape& example) : example_(example) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream&) override {
    tape.save_shape(x.shape());
    return x.view(with_examples(example_, x.size(0)));
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream&) override {
    return dy.view(tape.take_shape());
  }
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  Shape example_;
};

/// Selects one of the tokens (B, N, C), as (B, C).
class OneToken final : public Module {
 public:
  explicit OneToken(std::int64_t index) : index_(index) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  std::int64_t index_;
};

/// Prepends learned tokens, "<name>.weight" (count, C): (B, N, C) to (B, count + N, C).
class ClassTokens final : public Module {
 public:
  ClassTokens(const ModuleName& name, std::int64_t count, std::int64_t width, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(tokens_); }

 private:
  Parameter tokens_;
};

/// Adds a row of "<name>.weight" (places, C), learned or frozen sinusoids, to each position.
class PositionTable final : public Module {
 public:
  enum class Rows { kLearned, kSinusoids };
  PositionTable(const ModuleName& name, std::int64_t places, std::int64_t width, Rows rows,
                const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(rows_); }

 private:
  Parameter rows_;
};

/// Looks up tokens (B, N) or (B) i32 in "<name>.weight" (vocabulary, C), in the pass's dtype.
class TokenTable final : public Module {
 public:
  TokenTable(const ModuleName& name, std::int64_t vocabulary, std::int64_t width,
             const Stream& stream);
  Tensor forward(const Tensor& tokens, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(table_); }

 private:
  Parameter table_;
};

}  // namespace hybrid_trainer::graph
