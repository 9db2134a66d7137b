#pragma once

#include <memory>
#include <optional>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/low_rank_adapter.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Floating-point operations for a token.
struct TokenFlops {
  double forward = 0, backward = 0;
  double attended = 0;  // those of forward that Rebuild::kAttended adds to backward
  TokenFlops operator+(const TokenFlops& more) const {
    return {forward + more.forward, backward + more.backward, attended + more.attended};
  }
};

/// Consecutive rows of a matrix.
struct RowRange {
  std::int64_t begin, end;
};

/// Which of a product's outputs have a bias: all, none, or those of some ranges.
struct BiasRows {
  BiasRows(bool all) : exists(all) {}
  BiasRows(std::vector<RowRange> some) : exists(true), ranges(std::move(some)) {}
  bool exists;
  std::vector<RowRange> ranges{};  // in order; none: all
  /// How many of [begin, end) have one.
  std::int64_t count(RowRange rows) const;
};

/// y = x·wᵀ + bias over the last dimension, and what an adapter adds, if there is one. weight:
/// (outputs, inputs), bias: (outputs that have one) or none, named "<name>.weight|bias".
class Linear final : public Module {
 public:
  Linear(const ModuleName& name, std::int64_t inputs, std::int64_t outputs, const Stream& stream,
         const BiasRows& bias = true, Role role = Role::kMatrix);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Computes y plus `residual` (shape of y, or undefined).
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// The product alone, with nothing on the tape.
  Tensor product(const Tensor& x, const Tensor& residual, const Pass& pass, const Stream& stream);
  /// Whether y is one product: nothing is added to it, and nothing rounded.
  bool is_one_product(const Pass& pass) const { return !adapter_ && pass.products == nullptr; }
  /// What backward wants of x: nothing where there is no gradient that reads it.
  Tensor kept(const Tensor& x) const { return weight_.trainable() || adapter_ ? x : Tensor{}; }
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override { visit(*this); }
  Parameter& weight() { return weight_; }
  const Parameter& weight() const { return weight_; }
  /// Two for each weight and product, of which a frozen weight's gradient is none.
  TokenFlops flops() const;
  /// In a Hugging Face folder it consists of these modules, with so many of its rows each;
  /// `transposed`: their weights lie as (inputs, outputs); `orders`: of the first modules' rows.
  void set_in_files(const std::vector<std::string>& modules, const std::vector<std::int64_t>& rows,
                    bool transposed, const std::vector<RowGroups>& orders = {});
  /// Null where there is none.
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  /// The bias for a product, 0 for outputs that have none; no values where there is none at all.
  Weight acquire_bias(const Stream& stream) const;
  /// Adds to the map from now on: for outputs that `parts` cover.
  void set_adapter(std::vector<AdapterPart> parts, const AdapterSpec& spec, const Stream& stream);
  /// Null where there is none.
  LowRankAdapter* adapter() { return adapter_.get(); }
  void drop_adapter() { adapter_.reset(); }

 private:
  friend class LinearGradients;
  bool decomposes() const { return adapter_ && adapter_->decomposes(); }
  void multiply(const Tensor& y, const Tensor& x, const Tensor& residual, const Pass& pass,
                const Stream& stream);
  Tensor before_magnitudes(const Tensor& dy, const Tensor& x, const Pass& pass,
                           const Stream& stream);
  Parameter weight_;
  BiasRows bias_rows_;
  std::optional<Parameter> bias_;
  std::unique_ptr<LowRankAdapter> adapter_;
};

/// The gradients of weight, bias and adapter alone: written when this is made, and complete when it
/// is destroyed, until when the weights may be read.
class LinearGradients {
 public:
  /// x: what Linear::kept returned.
  LinearGradients(Linear& linear, const Tensor& dy, const Tensor& x, const Pass& pass,
                  const Stream& stream);
  /// dx = the gradient of x, over which it may be written. (N, inputs).
  void write_input_gradient(const Tensor& dx) const;

 private:
  void write_parameter_gradients(const Tensor& x);
  void write_bias_gradient(kernels::GradientMode mode);
  void round_gradient();
  Linear& linear_;
  Tensor dy_;          // decomposed, before the magnitudes
  Tensor product_dy_;  // as products read it
  const Pass& pass_;
  const Stream& stream_;
  GradientContribution dweight_, dbias_;
  std::optional<AdapterGradients> adapter_;
};

}  // namespace hybrid_trainer
