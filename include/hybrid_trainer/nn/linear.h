#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Consecutive outputs of a linear map that have an adapter of their own.
struct AdapterPart {
  std::string name;  // of the module in a Hugging Face folder: "model.layers.0.self_attn.q_proj"
  std::int64_t first_row = 0, rows = 0;
  bool transposed = false;  // the weight lies as (inputs, outputs) there
  RowGroups order{};        // of the outputs there
  /// The module is that of so many experts together, of which this is one.
  std::int64_t expert = 0, experts = 1;
};

struct AdapterSpec {
  std::int64_t rank = 0;
  double scale = 1;
  double dropout = 0;
  bool decomposed = false;  // rows have magnitudes of their own (DoRA)
  std::uint64_t site = 0;   // of the dropout's random numbers
};

/// Low-rank change of a linear map: y += scale·B·A·dropout(x), in each part with its own A (r,
/// inputs) and B (rows, r). They are one weight each, the parts' one under the other:
/// "<name>.lora_A" (parts·r, inputs) and "<name>.lora_B" (rows of all parts, r). The parts share
/// the dropped x. Nothing is kept for backward: A·x is computed again. Decomposed, the sum is then
/// multiplied by m/n, where n is the norm of the row of W + scale·B·A, a constant to the gradients,
/// and m, at first W's, "<name>.lora_magnitude_vector" (rows of all parts). Sources: Hu et al.
/// 2022, "LoRA: low-rank adaptation of large language models"; Liu et al. 2024, "DoRA:
/// weight-decomposed low-rank adaptation".
class LowRankAdapter {
 public:
  /// Zeros. At most DiagonalBlocks::kMost parts, in the order of their rows.
  LowRankAdapter(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                 std::vector<AdapterPart> parts, const AdapterSpec& spec, const Stream& stream);
  /// y (N, outputs) += scale·B·A·dropout(x), x (N, inputs).
  void add_to(const Tensor& y, const Tensor& x, const Pass& pass, const Stream& stream);
  /// w (outputs, inputs) f32 += scale·B·A; decomposed, its rows then get their magnitudes.
  void merge_into(const Tensor& w, const Stream& stream);
  bool decomposes() const { return magnitude_.has_value(); }
  /// Magnitudes are the norms of the weight's rows from now on.
  void start_magnitudes(const Parameter& weight, const Stream& stream);
  /// m/n and n of each output; 1 for m/n where there is no adapter. W is made in f32 for it.
  struct RowFactors {
    Tensor factors, norms;
  };
  RowFactors row_factors(const Parameter& weight, const Stream& stream) const;
  /// Contributes the magnitudes' gradient: z (N, outputs) is what was multiplied, and is overwritten.
  void contribute_magnitudes(const Tensor& z, const Tensor& dy, const RowFactors& rows,
                             const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    visit(a_);
    visit(b_);
    if (magnitude_) visit(*magnitude_);
  }

  /// x, of which in training a share is dropped.
  Tensor dropped(const Tensor& x, const Pass& pass, const Stream& stream,
                 const TokenRows& rows = {}) const;
  /// scale·B as the (outputs, parts·r) that the parts' products side by side are multiplied with.
  Tensor wide_b(DType dtype, const Stream& stream) const;
  const kernels::DiagonalBlocks& blocks() const { return blocks_; }

  const std::vector<AdapterPart>& parts() const { return parts_; }
  const AdapterSpec& spec() const { return spec_; }
  Parameter& a() { return a_; }
  Parameter& b() { return b_; }
  /// Null where the adapter is not decomposed.
  Parameter* magnitude() { return magnitude_ ? &*magnitude_ : nullptr; }

 private:
  friend class AdapterGradients;
  Tensor reduced(const Tensor& x, const Stream& stream) const;
  void add_product(const Tensor& w, const Stream& stream) const;
  RowFactors row_factors(const Tensor& merged, const Stream& stream) const;
  std::int64_t outputs_;
  std::vector<AdapterPart> parts_;
  AdapterSpec spec_;
  kernels::DiagonalBlocks blocks_;
  Parameter a_, b_;
  std::optional<Parameter> magnitude_;
};

/// The gradients of A and B alone: written when this is made, complete when it is destroyed.
class AdapterGradients {
 public:
  AdapterGradients(LowRankAdapter& adapter, const Tensor& dy, const Tensor& x, const Pass& pass,
                   const Stream& stream);
  /// dx += what the adapter contributes.
  void add_input_gradient(const Tensor& dx) const;

 private:
  LowRankAdapter& adapter_;
  const Pass& pass_;
  const Stream& stream_;
  GradientContribution da_, db_;
  Tensor dreduced_;  // (N, parts·r)
};

/// Whether a weight is part of an adapter, by its name.
bool is_of_adapter(const Parameter& parameter);

/// Floating-point operations for a token.
struct TokenFlops {
  double forward = 0, backward = 0;
  double attended = 0;  // those of forward that Rebuild::kAttended adds to backward
  TokenFlops operator+(const TokenFlops& more) const {
    return {forward + more.forward, backward + more.backward, attended + more.attended};
  }
  TokenFlops operator*(double count) const {
    return {count * forward, count * backward, count * attended};
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
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override {
    return forward(x, Tensor{}, tape, stream);
  }
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
