#pragma once

#include <optional>

#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "src/models/layer_inputs.h"

namespace hybrid_trainer {

struct KeyValueCache;

/// Keys and values that layers share, the sum of their gradients, and the cache in generation.
class SharedKeys {
 public:
  /// `columns`: number of columns of a token's keys and values.
  explicit SharedKeys(std::int64_t columns) : columns_(columns) {}
  /// Keeps qkv (B, T, …), whose last columns are the keys and values.
  void set(Tensor qkv) { qkv_ = std::move(qkv); }
  /// Copies keys and values to the last columns of `qkv`.
  void copy_to(const Tensor& qkv, const Stream& stream) const;
  /// Adds the last columns of `dqkv` to the gradient.
  void add_gradient(const Tensor& dqkv, const Stream& stream);
  /// Adds the gradient to the last columns of `dqkv` and frees it.
  void take_gradient(const Tensor& dqkv, const Stream& stream);
  void drop() { qkv_ = {}, gradient_ = {}; }
  const KeyValueCache* cache() const { return cache_; }
  void set_cache(const KeyValueCache* cache) { cache_ = cache; }

 private:
  kernels::Columns last_columns(const Tensor& rows) const;
  std::int64_t columns_;
  Tensor qkv_, gradient_;
  const KeyValueCache* cache_ = nullptr;
};

/// Inputs of Gemma 4's layers, P channels each, and the keys and values that layers share. The
/// input of a layer is (norm(wle.projection(x)/√C) + √P·row of the token)/√2; the rows of all
/// layers are the table "wle.weight" (tokens, layers·P).
class Gemma4Inputs final : public LayerInputs {
 public:
  struct Spec {
    std::int64_t layers = 0, width = 0;  // C
    std::int64_t input_width = 0;        // P; 0: no inputs, no parameters
    std::int64_t rows = 0;               // of the table
    float epsilon = 1e-6f;
    std::int64_t window_columns = 0, full_columns = 0;  // of shared keys and values
  };
  Gemma4Inputs(const Spec& spec, const Stream& stream);
  void forward(const Tensor& tokens, const Tensor& x, ActivationTape& tape,
               const Stream& stream) override;
  void backward(const Tensor& dx, const Tensor& tokens, ActivationTape& tape,
                const Stream& stream) override;
  void drop() override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops() const override { return projection_ ? projection_->flops() : TokenFlops{}; }
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override {
    if (projection_) visit(*projection_);
  }

  std::int64_t next_layer() { return layers_made_++; }
  std::int64_t width() const { return spec_.input_width; }
  /// Copies the layer's input to columns of a row for each token.
  void copy_to(const kernels::Columns& to, std::int64_t layer, const Stream& stream) const;
  /// Takes the gradient of the layer's input from columns of a row for each token.
  void put_gradient(const kernels::Columns& from, std::int64_t layer, const Stream& stream);
  const std::shared_ptr<SharedKeys>& shared_keys(bool has_window) const {
    return has_window ? of_windows_ : of_all_;
  }

 private:
  std::int64_t columns() const { return spec_.layers * spec_.input_width; }
  Spec spec_;
  std::int64_t layers_made_ = 0;
  std::optional<Parameter> table_;
  std::optional<Linear> projection_;
  std::unique_ptr<Norm> norm_;
  Tensor inputs_, gradient_;  // (B·T, layers·P)
  std::shared_ptr<SharedKeys> of_windows_, of_all_;
};

/// Attention of Gemma 4: y = residual + c_proj(attention(c_attn(x))), with scores of scale 1, norms
/// of queries, keys and values (without gain), and rotation. The rows of c_attn are queries, keys
/// and values. There are no rows for values if they are the keys before their norm, and only rows
/// for queries if the layer reads shared keys and values.
class Gemma4Attention final : public TwoProductBranch, public Rebuilder {
 public:
  enum class Keys { kOwn, kOwnAndShared, kRead };
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;
    bool biases = false;
    bool keys_are_values = false;
    kernels::RmsNormSpec norm{};
    std::shared_ptr<RotaryTable> rotary{};
    Keys keys = Keys::kOwn;
    std::shared_ptr<SharedKeys> shared{};  // of layers of this kind
  };
  Gemma4Attention(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  TokenFlops flops(std::int64_t time) const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  bool reads() const { return spec_.keys == Keys::kRead; }
  std::int64_t columns(std::int64_t heads) const { return heads * spec_.head_size; }
  RotaryTable::Angles angles(std::int64_t time, const Pass& pass, const Stream& stream) const {
    return spec_.rotary->of_sequences(time, static_cast<bool>(pass.positions), stream);
  }
  /// Returns queries, keys and values before their norms.
  Tensor assembled(const Tensor& product, const Stream& stream) const;
  Tensor prepared(const Tensor& product, const RotaryTable::Angles& angles, const Pass& pass,
                  const Stream& stream) const;
  /// Replaces dqkv, the gradient after norms and rotation, with the gradient before them.
  void prepare_backward(const Tensor& dqkv, const Tensor& product,
                        const RotaryTable::Angles& angles, const Pass& pass, const Stream& stream);
  Tensor product_gradient(const Tensor& dqkv, const Stream& stream) const;
  void rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
              kernels::Rotation rotation, const Stream& stream) const;
  Tensor attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                  const Stream& stream) const;
  Spec spec_;
  Parameter query_norm_;
  std::optional<Parameter> key_norm_;  // none if it reads shared keys
};

/// Last branch of Gemma 4's layers: y = s·(residual + norm(c_proj(gelu(c_gate(x))·input))), or
/// s·residual if there are no inputs. s is "<name>.scalar", initially 1 and not trained.
class Gemma4LayerEnd final : public ResidualBranch {
 public:
  struct Spec {
    std::int64_t width = 0;  // C
    float epsilon = 1e-6f;
    std::shared_ptr<Gemma4Inputs> inputs{};
  };
  Gemma4LayerEnd(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Throws Error if `residual` is undefined, as it is with dropout, which is not supported.
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;

 private:
  Tensor from_input(const Tensor& x, ActivationTape& tape, const Stream& stream);
  Tensor input_backward(const Tensor& dy, ActivationTape& tape, const Stream& stream);
  std::shared_ptr<Gemma4Inputs> inputs_;
  std::int64_t layer_;
  std::optional<Linear> gate_, projection_;
  std::unique_ptr<Norm> norm_;  // null without inputs
  Parameter scalar_;
};

}  // namespace hybrid_trainer
