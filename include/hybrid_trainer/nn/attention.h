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

/// Output gates of attention: each number of the heads' output is multiplied by σ(gate). A row of
/// the first product contains the queries, one gate per query column, then keys and values.
class AttentionGate {
 public:
  /// `columns`: query columns of a token.
  explicit AttentionGate(std::int64_t columns) : columns_(columns) {}
  /// Returns the queries, keys and values of a product (B, T, any).
  Tensor without_gates(const Tensor& product, const Stream& stream) const;
  /// Returns y (B, T, columns) times the gates.
  Tensor apply(const Tensor& y, const Tensor& product, const Stream& stream) const;
  /// Replaces dy with the gradient of y, and writes the gate columns of dproduct.
  void backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y, const Tensor& product,
                const Stream& stream) const;
  /// Writes dqkv to the columns of dproduct that are not gates.
  void put_without_gates(const Tensor& dproduct, const Tensor& dqkv, const Stream& stream) const;

 private:
  std::int64_t columns_;
};

/// RMS norms of attention's queries and keys, one per head: query heads share the gain
/// "<name>.q_norm.weight" (head_size), key heads share "<name>.k_norm.weight". With `whole`, one
/// norm spans all heads, and the gains cover all of their channels.
class HeadNorms {
 public:
  HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads, std::int64_t head_size,
            const kernels::RmsNormSpec& norm, bool whole, const Stream& stream);
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

/// Preprocessing of queries, keys and values before attention, each step optional: norms of queries
/// and keys, clamping of all three, and rotary embedding of queries and keys.
class HeadPreparation {
 public:
  struct Spec {
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;
    std::optional<kernels::RmsNormSpec> norm{};
    bool norms_all_heads = false;  // one norm spans all query heads, and one all key heads
    float limit = 0;               // all are clamped to [−limit, limit]; 0: not clamped
    std::shared_ptr<RotaryTable> rotary{};
  };
  HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Returns whether forward does more than rotate. If not, backward does not need forward's input.
  bool changes() const { return norms_ || limit_ > 0; }
  /// Null without rotary embedding.
  RotaryTable* rotary() const { return rotary_.get(); }
  /// Returns whether rotation depends only on a token's position; true without rotary embedding.
  bool is_relative() const { return rotary_ == nullptr || rotary_->is_relative(); }
  /// Returns angles for sequences that end at position `end`; undefined without rotary embedding.
  RotaryTable::Angles angles(std::int64_t end, const Pass& pass, const Stream& stream) const {
    if (rotary_ == nullptr) return {};
    return rotary_->of_sequences(end, static_cast<bool>(pass.positions), stream);
  }
  /// Processes qkv (B, T, …) in place; its rows are all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
               const Stream& stream);
  /// Replaces dqkv with the gradient of forward's input `from`, which is read only if changes().
  void backward(const Tensor& dqkv, const Tensor& from, const RotaryTable::Angles& angles,
                const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    if (norms_) norms_->visit_parameters(visit);
  }

 private:
  void rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
              kernels::Rotation rotation, const Stream& stream) const;
  std::int64_t rotated_heads_, head_size_;
  std::optional<HeadNorms> norms_;
  float limit_;
  std::shared_ptr<RotaryTable> rotary_;
};

/// Keys and values of earlier segments' tokens that the queries of a segment attend to, within the
/// window. They are stored before norms and rotation. Attention runs over these tokens and the
/// segment's own; its output for the earlier tokens is dropped.
class CarriedKeys {
 public:
  CarriedKeys(const kernels::AttentionSpec& heads, std::int64_t head_size)
      : heads_(heads), head_size_(head_size) {}

  /// Returns the number of earlier tokens that the segment attends to; 0 outside segmented passes.
  std::int64_t before(const Pass& pass) const;
  /// Returns (B, before + T, columns): the carried rows, with zero queries, followed by qkv (B, T,
  /// columns). Stores the rows that the next segment needs if the pass's carry asks for them.
  Tensor joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const;
  /// Returns the pass with the positions of the joined rows, if it has positions.
  Pass joined(const Pass& pass, std::int64_t time, const Stream& stream) const;
  /// Returns an exclusive upper bound of the rotary positions of the joined rows of `time` tokens.
  std::int64_t positions_end(const Pass& pass, std::int64_t time) const {
    if (pass.carry != nullptr && pass.positions) return pass.carry->place().positions.size(1);
    return before(pass) + time;
  }
  /// Returns x (B, T, columns) after a zero row for each carried token; `own` removes these rows.
  Tensor after_zero_rows(const Tensor& x, const Pass& pass, const Stream& stream) const;
  Tensor own(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  /// Returns the gradient of qkv, given the gradient of the joined rows. Adds the next segment's
  /// gradient to the last rows, and passes the gradient of the carried rows to the previous
  /// segment.
  Tensor backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const;

 private:
  SegmentCarry::Slot& slot(const Pass& pass) const { return pass.carry->of(this); }
  void fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  std::int64_t first_column() const { return heads_.queries * head_size_; }
  std::int64_t columns() const { return 2 * heads_.keys * head_size_; }

  kernels::AttentionSpec heads_;
  std::int64_t head_size_;
};

/// Multi-head self-attention, causal or bidirectional: y = residual + c_proj(attention(c_attn(x)));
/// the rows of c_attn are all queries, all keys, all values. Optional steps, in this order: a
/// causal convolution over all of them, "<name>.conv.weight" (rows of c_attn, taps); norms of each
/// head's query and key (HeadNorms); rotation. Gates, whose rows of c_attn follow the queries,
/// multiply each number of the heads' output by a sigmoid. With sinks, "<name>.sinks" (heads),
/// initially 0, each softmax may assign part of its weight to no key.
class Attention final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;  // of each query, key and value
    bool biases = true;          // of c_attn
    bool key_bias = true;        // of c_attn's keys, if it has biases
    bool output_bias = true;     // of c_proj
    std::optional<kernels::RmsNormSpec> query_key_norm{};
    bool norms_all_heads = false;           // one norm spans all query heads, and one all key heads
    float limit = 0;                        // clamps normed queries, keys and values; 0: none
    std::shared_ptr<RotaryTable> rotary{};  // rotates queries and keys by their positions
    bool gated = false;
    std::int64_t taps = 0;                     // of the convolution; 0: none
    bool bidirectional = false;                // tokens attend to later ones too, as in an encoder
    bool sinks = false;                        // see kernels::AttentionSpec
    std::shared_ptr<RelativeBias> relative{};  // added to scores; its owner visits its parameters
    std::uint64_t pattern_seed = 0;  // seeds the key of heads.pattern, with the module's name
    ProductFiles files{};            // the parts: queries, keys, values
  };

  Attention(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Recomputes the heads' output from queries, keys and values.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// Decodes x, (1, T, C) for one text or (B, 1, C) for several. `state` comes from make_state.
  /// Throws Error if attention is bidirectional, since later tokens would change earlier outputs.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  /// Returns whether attention is causal with a window, which bounds the carried keys, and has no
  /// convolution, no relative bias, no dynamic rotary scaling, and no pattern, which would count
  /// blocks from the start of a sequence.
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
  /// Returns whether backward recomputes queries, keys and values from the stored product.
  bool recomputes_qkv(const Pass& pass) const {
    return preparation_.changes() || gate_ || convolution_ || pass.carry != nullptr;
  }
  /// Returns the input of the norms: without gates, or after the convolution.
  Tensor plain(const Tensor& product, const Pass& pass, const Stream& stream) {
    if (gate_) return gate_->without_gates(product, stream);
    return convolution_ ? convolution_->forward(product, Tensor{}, pass, stream) : product;
  }
  Weight held_sinks(const Stream& stream) const {
    return sinks_ ? sinks_->acquire_master(stream) : Weight();
  }
  /// Contributes the gradient of the sinks, from the heads' output y and its gradient.
  void sinks_backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                      const Stream& stream);
  /// Returns the spec with the relative bias for sequences of `time` tokens, if there is one.
  kernels::AttentionSpec biased(std::int64_t time, const Stream& stream) const {
    return relative_ ? heads_.with_bias(relative_->values(time, stream)) : heads_;
  }
  Tensor attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                  const Stream& stream) const;
  /// Returns the carried rows, followed by plain's result.
  Tensor joined(const Tensor& product, const Pass& pass, const Stream& stream) {
    return carried_.joined(plain(product, pass, stream), pass, stream);
  }
  /// Returns joined's result, normed and rotated. Leaves `product` unchanged unless `in_place`.
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
