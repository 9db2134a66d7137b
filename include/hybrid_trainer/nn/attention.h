#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "hybrid_trainer/nn/token_convolution.h"

namespace hybrid_trainer {

/// Output gates of attention, which multiply the heads' output by σ(gate). A row of the first
/// product contains queries, one gate per query column, keys and values, in this order.
class AttentionGate {
 public:
  /// `columns`: number of query columns, which equals the number of gates per token.
  explicit AttentionGate(std::int64_t columns) : columns_(columns) {}
  /// Returns the queries, keys and values of a product (B, T, any), without the gates.
  Tensor without_gates(const Tensor& product, const Stream& stream) const;
  /// Returns y (B, T, columns) multiplied by the gates' sigmoids.
  Tensor apply(const Tensor& y, const Tensor& product, const Stream& stream) const;
  /// Replaces dy with the gradient of y, and writes the gates' gradient to dproduct.
  void backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y, const Tensor& product,
                const Stream& stream) const;
  /// Writes dqkv, the gradient of the queries, keys and values, to the other columns of dproduct.
  void put_without_gates(const Tensor& dproduct, const Tensor& dqkv, const Stream& stream) const;

 private:
  std::int64_t columns_;
};

/// RMS norms of queries and keys, one per head, with gains "<name>.q_norm.weight" and
/// "<name>.k_norm.weight" (head_size). If `whole` is set, one norm spans all heads.
class HeadNorms {
 public:
  /// `in_files`: ending of the norms' names in files, after "q_" and "k_".
  HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads, std::int64_t head_size,
            const kernels::RmsNormSpec& norm, bool whole, const std::string& in_files,
            const Stream& stream);
  /// Normalizes qkv in place; its rows are all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const Stream& stream);
  /// Replaces dqkv, the gradient of the result, with the gradient of `qkv`, the input of forward.
  void backward(const Tensor& dqkv, const Tensor& qkv, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    visit(queries_);
    visit(keys_);
  }

 private:
  kernels::RmsNormSpec norm_;
  kernels::HeadRange query_heads_, kv_heads_;
  Parameter queries_, keys_;
};

/// Preprocesses queries, keys and values. Optional steps: norms, clamping, rotary embedding.
class HeadPreparation {
 public:
  struct Spec {
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;
    std::optional<kernels::RmsNormSpec> norm{};
    bool norms_all_heads = false;  // one norm spans all query heads, and one all key heads
    std::string norm_in_files{};   // see HeadNorms
    float limit = 0;               // clamps q, k and v to [−limit, limit]; 0: no clamping
    std::shared_ptr<RotaryTable> rotary{};
  };
  HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Returns whether the forward pass normalizes or clamps. If not, backward does not need its input.
  bool changes() const { return norms_ || limit_ > 0; }
  /// Returns the rotary table, or null without rotary embedding.
  RotaryTable* rotary() const { return rotary_.get(); }
  /// Returns whether a token's rotation depends only on its position.
  bool is_relative() const { return rotary_ == nullptr || rotary_->is_relative(); }
  /// Returns angles for sequences that end at position `end`, or an undefined tensor without rotary
  /// embedding.
  RotaryTable::Angles angles(std::int64_t end, const Pass& pass, const Stream& stream) const {
    if (rotary_ == nullptr) return {};
    return rotary_->of_sequences(end, static_cast<bool>(pass.positions), stream);
  }
  /// Processes qkv (B, T, …) in place: all queries, all keys and all values.
  void forward(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
               const Stream& stream);
  /// Replaces dqkv with the gradient of the input, `from`, which is read only if changes().
  void backward(const Tensor& dqkv, const Tensor& from, const RotaryTable::Angles& angles,
                const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    if (norms_) norms_->visit_parameters(visit);
  }

 private:
  void rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
              kernels::Rotation rotation, const Stream& stream) const;
  std::int64_t query_heads_, rotated_heads_, head_size_;
  std::optional<HeadNorms> norms_;
  float limit_;
  std::shared_ptr<RotaryTable> rotary_;
};

/// Carries keys and values of earlier segments to the next segment, as far as its queries attend to
/// them within the window. Stores them before norms and rotation. Attention runs over the carried
/// tokens and the segment's tokens, and its output for the carried tokens is dropped.
class CarriedKeys {
 public:
  CarriedKeys(const kernels::AttentionSpec& heads, std::int64_t head_size)
      : heads_(heads), head_size_(head_size) {}

  /// Returns the number of carried tokens that the segment attends to, or 0 outside segmented
  /// passes.
  std::int64_t before(const Pass& pass) const;
  /// Returns the carried rows, with zero queries, followed by qkv: (B, before + T, columns). Stores
  /// rows for the next segment if the pass's carry needs them.
  Tensor joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const;
  /// Returns the pass with the positions of the joined rows, if it has positions.
  Pass joined(const Pass& pass, std::int64_t time, const Stream& stream) const;
  /// Returns an exclusive upper bound of the rotary positions of the joined rows of `time` tokens.
  std::int64_t positions_end(const Pass& pass, std::int64_t time) const {
    if (pass.carry != nullptr && pass.positions) return pass.carry->place().positions.size(1);
    return before(pass) + time;
  }
  /// Prepends a zero row for each carried token to x (B, T, columns). `own` removes these rows.
  Tensor after_zero_rows(const Tensor& x, const Pass& pass, const Stream& stream) const;
  Tensor own(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  /// Returns the gradient of qkv from the gradient of the joined rows. Adds the gradient that the
  /// next segment has passed back to the last rows, and passes the gradient of the carried rows to
  /// the previous segment.
  Tensor backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const;

 private:
  SegmentCarry::Slot& slot(const Pass& pass) const { return pass.carry->of(this); }
  void fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  std::int64_t first_column() const { return heads_.queries * head_size_; }
  std::int64_t columns() const { return 2 * heads_.keys * head_size_; }

  kernels::AttentionSpec heads_;
  std::int64_t head_size_;
};

/// Multi-head self-attention: y = residual + c_proj(attention(c_attn(x))). The rows of c_attn are
/// all queries, all keys and all values. Optional, in this order: a causal convolution over all
/// rows, "<name>.conv.weight"; HeadNorms; rotation; output gates (AttentionGate), whose rows of
/// c_attn follow the queries; sinks, "<name>.sinks" (heads), initially 0, which take a part of the
/// softmax.
class Attention final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;  // channels of each query, key and value
    bool biases = true;          // biases of c_attn
    bool key_bias = true;        // whether the keys of c_attn have a bias, if it has biases
    bool output_bias = true;     // bias of c_proj
    std::optional<kernels::RmsNormSpec> query_key_norm{};
    bool norms_all_heads = false;           // one norm spans all query heads, and one all key heads
    std::string norm_in_files = "norm";     // see HeadNorms
    float limit = 0;                        // clamps normed queries, keys and values; 0: none
    std::shared_ptr<RotaryTable> rotary{};  // rotates queries and keys by their positions
    bool gated = false;
    std::int64_t taps = 0;                     // taps of the convolution; 0: no convolution
    bool bidirectional = false;                // tokens also attend to later tokens
    bool sinks = false;                        // see kernels::AttentionSpec
    std::shared_ptr<RelativeBias> relative{};  // shared by layers; its owner visits its parameters
    std::uint64_t pattern_seed = 0;            // seed of heads.pattern, with the module's name
    ProductFiles files{};                      // parts: queries, keys, values
  };

  Attention(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// Decodes x, (1, T, C) for one text or (B, 1, C) for several. Throws Error if bidirectional.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  /// Returns whether attention is causal with a window, and has no convolution, relative bias,
  /// dynamic rotary scaling or block pattern.
  bool supports_segments() const override {
    return heads_.window > 0 && !heads_.bidirectional && !convolution_ && !relative_ &&
           !heads_.pattern.is_on() && preparation_.is_relative();
  }
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override {
    TwoProductBranch::initialize(deviations, seed, stream);
    if (convolution_) convolution_->initialize(seed, stream);
  }
  TokenFlops flops(std::int64_t time) const override {
    return flops_with(4 * kernels::visible_keys(heads_, time) * static_cast<double>(inner()), 2);
  }
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor gate_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y,
                       const Tensor& product, const Pass& pass, const Stream& stream);
  bool recomputes_qkv(const Pass& pass) const {
    return preparation_.changes() || gate_ || convolution_ || pass.carry != nullptr;
  }
  /// Returns queries, keys and values before norms.
  Tensor plain(const Tensor& product, const Pass& pass, const Stream& stream) {
    if (gate_) return gate_->without_gates(product, stream);
    return convolution_ ? convolution_->forward(product, Tensor{}, pass, stream) : product;
  }
  Weight held_sinks(const Stream& stream) const {
    return sinks_ ? sinks_->acquire_master(stream) : Weight();
  }
  /// Computes the sinks' gradient from the heads' output y and its gradient.
  void sinks_backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                      const Stream& stream);
  /// Returns the attention spec, with the relative bias if there is one.
  kernels::AttentionSpec biased(std::int64_t time, const Stream& stream) const {
    return relative_ ? heads_.with_bias(relative_->values(time, stream)) : heads_;
  }
  Tensor attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                  const Stream& stream) const;
  Tensor joined(const Tensor& product, const Pass& pass, const Stream& stream) {
    return carried_.joined(plain(product, pass, stream), pass, stream);
  }
  /// Returns `joined` after norms and rotation. Overwrites `product` only if `in_place` is set.
  Tensor prepared(const Tensor& product, const RotaryTable::Angles& angles, const Pass& pass,
                  bool in_place, const Stream& stream);
  RotaryTable::Angles angles(std::int64_t time, const Pass& pass, const Stream& stream) {
    return preparation_.angles(carried_.positions_end(pass, time), pass, stream);
  }
  std::int64_t inner() const { return heads_.queries * head_size_; }
  kernels::AttentionSpec heads_;
  std::optional<Parameter> sinks_;
  std::shared_ptr<RelativeBias> relative_;  // or null
  std::int64_t head_size_;
  HeadPreparation preparation_;
  std::optional<AttentionGate> gate_;
  std::optional<TokenConvolution> convolution_;
  CarriedKeys carried_;
};

}  // namespace hybrid_trainer
