#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Consecutive outputs of a linear map that have a separate adapter.
struct AdapterPart {
  std::string name;  // name of the module in a folder, such as "model.layers.0.self_attn.q_proj"
  std::int64_t first_row = 0, rows = 0;
  bool transposed = false;  // the folder stores the weight as (inputs, outputs)
  RowGroups order{};        // row order in the folder
  /// If the module stacks `experts` experts, this part belongs to expert `expert`.
  std::int64_t expert = 0, experts = 1;
};

struct AdapterSpec {
  std::int64_t rank = 0;
  double scale = 1;
  double dropout = 0;
  bool decomposed = false;  // rows have separate magnitudes (DoRA)
  std::uint64_t site = 0;   // selects the random numbers of dropout
};

/// Low-rank update of a linear map: y += scale·B·A·dropout(x), with A (r, inputs) and B (rows, r)
/// for each part, stacked in "<name>.lora_A" and "<name>.lora_B". Backward recomputes A·x. If
/// decomposed, each output is multiplied by m/n: n is the norm of its row of W + scale·B·A, a
/// constant in backward, and m is "<name>.lora_magnitude_vector", initially the norms of W's rows.
/// Sources: Hu et al. 2022, "LoRA: low-rank adaptation of large language models"; Liu et al. 2024,
/// "DoRA: weight-decomposed low-rank adaptation".
class LowRankAdapter {
 public:
  /// Creates zero weights. `parts`: at most DiagonalBlocks::kMax, in the order of their rows.
  LowRankAdapter(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                 std::vector<AdapterPart> parts, const AdapterSpec& spec, const Stream& stream);
  /// Adds scale·B·A·dropout(x) to y (N, outputs), for x (N, inputs).
  void add_to(const Tensor& y, const Tensor& x, const Pass& pass, const Stream& stream);
  /// Adds scale·B·A to w (outputs, inputs) f32, then scales the rows if decomposed.
  void merge_into(const Tensor& w, const Stream& stream);
  bool decomposes() const { return magnitude_.has_value(); }
  /// Initializes the magnitudes with the norms of the weight's rows.
  void start_magnitudes(const Parameter& weight, const Stream& stream);
  /// Factor m/n (1 without an adapter) and norm n of each output, from W in f32.
  struct RowFactors {
    Tensor factors, norms;
  };
  RowFactors row_factors(const Parameter& weight, const Stream& stream) const;
  /// Adds to the magnitudes' gradient. z (N, outputs): output before m/n; overwritten.
  void contribute_magnitudes(const Tensor& z, const Tensor& dy, const RowFactors& rows,
                             const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    visit(a_);
    visit(b_);
    if (magnitude_) visit(*magnitude_);
  }

  /// Returns x, with dropout applied in training.
  Tensor dropped(const Tensor& x, const Pass& pass, const Stream& stream,
                 const TokenRows& rows = {}) const;
  /// Returns scale·B of all parts as one matrix (outputs, parts·r).
  Tensor wide_b(DType dtype, const Stream& stream) const;
  const kernels::DiagonalBlocks& blocks() const { return blocks_; }

  const std::vector<AdapterPart>& parts() const { return parts_; }
  const AdapterSpec& spec() const { return spec_; }
  Parameter& a() { return a_; }
  Parameter& b() { return b_; }
  /// Returns the magnitudes, or null if the adapter is not decomposed.
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

/// Writes the gradients of A and B, which are complete when this object is destroyed.
class AdapterGradients {
 public:
  AdapterGradients(LowRankAdapter& adapter, const Tensor& dy, const Tensor& x, const Pass& pass,
                   const Stream& stream);
  /// Adds the adapter's contribution to dx.
  void add_input_gradient(const Tensor& dx) const;

 private:
  LowRankAdapter& adapter_;
  const Pass& pass_;
  const Stream& stream_;
  GradientContribution da_, db_;
  Tensor dreduced_;  // (N, parts·r)
};

/// Returns whether a weight belongs to an adapter, according to its name.
bool belongs_to_adapter(const Parameter& parameter);

struct TokenFlops {
  double forward = 0, backward = 0;
  double attended = 0;  // forward operations that Rebuild::kAttended adds to backward
  TokenFlops operator+(const TokenFlops& more) const {
    return {forward + more.forward, backward + more.backward, attended + more.attended};
  }
  TokenFlops operator*(double count) const {
    return {count * forward, count * backward, count * attended};
  }
};

struct RowRange {
  std::int64_t begin, end;
};

/// Outputs of a product that have a bias: all, none, or the rows in some ranges.
struct BiasRows {
  BiasRows(bool all) : exists(all) {}
  BiasRows(std::vector<RowRange> some) : exists(true), ranges(std::move(some)) {}
  bool exists;
  std::vector<RowRange> ranges{};  // in ascending order; empty: all rows
  /// Returns the number of rows in the range that have a bias.
  std::int64_t count(RowRange rows) const;
};

/// Linear map of the last dimension: y = x·wᵀ + bias, plus the adapter's result if there is one.
/// Parameters: "<name>.weight" (outputs, inputs), "<name>.bias" (outputs with a bias).
class Linear final : public Module {
 public:
  Linear(const ModuleName& name, std::int64_t inputs, std::int64_t outputs, const Stream& stream,
         const BiasRows& bias = true, Role role = Role::kMatrix);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override {
    return forward(x, Tensor{}, tape, stream);
  }
  /// Returns y + residual. `residual`: shaped like y, or undefined.
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Computes the product without saving anything on the tape.
  Tensor product(const Tensor& x, const Tensor& residual, const Pass& pass, const Stream& stream);
  /// Returns whether y is a single product, without adapter or rounding.
  bool is_one_product(const Pass& pass) const { return !adapter_ && pass.products == nullptr; }
  /// Returns x if backward needs it, else an undefined tensor.
  Tensor kept(const Tensor& x) const { return weight_.trainable() || adapter_ ? x : Tensor{}; }
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override { visit(*this); }
  Parameter& weight() { return weight_; }
  const Parameter& weight() const { return weight_; }
  /// Counts two operations per weight and product; frozen weights have no weight-gradient product.
  TokenFlops flops() const;
  /// Sets the modules of a Hugging Face folder that form this map, and their rows. `transposed`:
  /// the folder stores (inputs, outputs). `orders`: row orders of the first modules.
  void set_in_files(const std::vector<std::string>& modules, const std::vector<std::int64_t>& rows,
                    bool transposed, const std::vector<RowGroups>& orders = {});
  /// Returns the bias, or null without a bias.
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  /// Acquires the bias, with zeros for outputs without a bias. Empty if no output has a bias.
  Weight acquire_bias(const Stream& stream) const;
  /// Attaches an adapter for the outputs that `parts` cover.
  void set_adapter(std::vector<AdapterPart> parts, const AdapterSpec& spec, const Stream& stream);
  /// Returns the adapter, or null without an adapter.
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

/// Writes the gradients of weight, bias and adapter, which are complete when this object is
/// destroyed.
class LinearGradients {
 public:
  /// x: the result of Linear::kept.
  LinearGradients(Linear& linear, const Tensor& dy, const Tensor& x, const Pass& pass,
                  const Stream& stream);
  /// Writes the gradient of x to dx (N, inputs), which may be x itself.
  void write_input_gradient(const Tensor& dx) const;

 private:
  void write_parameter_gradients(const Tensor& x);
  void write_bias_gradient(kernels::GradientMode mode);
  void round_gradient();
  Linear& linear_;
  Tensor dy_;          // if decomposed, the gradient before the multiplication by m/n
  Tensor product_dy_;  // dy rounded for products (see ProductRounding)
  const Pass& pass_;
  const Stream& stream_;
  GradientContribution dweight_, dbias_;
  std::optional<AdapterGradients> adapter_;
};

}  // namespace hybrid_trainer
