#pragma once

#include <memory>

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/attention_gate.h"
#include "hybrid_trainer/nn/attention_sinks.h"
#include "hybrid_trainer/nn/carried_keys.h"
#include "hybrid_trainer/nn/head_preparation.h"
#include "hybrid_trainer/nn/relative_bias.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/token_convolution.h"

namespace hybrid_trainer {

/// Multi-head self-attention, causal or two-way: y = residual + c_proj(attention(c_attn(x))); c_attn's
/// rows are all queries, all keys, all values. Between the two, where the spec says so, a causal
/// convolution goes over all of them, "<name>.conv.weight" (rows of c_attn, taps); each head's query
/// and key are normed with gains "<name>.q_norm.weight" and "<name>.k_norm.weight", then rotated.
/// Gated, each number of what the heads attended to is multiplied by the sigmoid of a gate, whose rows
/// of c_attn follow the queries'. With sinks, "<name>.sinks" (heads), 0 at first, each softmax may give
/// a part of its weight to no key.
class Attention final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;  // of each query, key and value
    bool biases = true;          // of c_attn
    bool key_bias = true;        // of its keys, where there are any
    bool output_bias = true;     // of c_proj
    std::optional<kernels::RmsNormSpec> query_key_norm{};
    bool norms_all_heads = false;  // that norm is of all heads of queries, and of keys, together
    float limit = 0;               // to which normed queries, keys and values are cut; 0: none
    std::shared_ptr<RotaryTable> rotary{};  // turns queries and keys by their positions
    bool gated = false;
    std::int64_t taps = 0;                     // of the convolution; 0: none
    bool two_way = false;                      // each token sees later ones too, as in an encoder
    bool sinks = false;                        // see kernels::AttentionSpec
    std::shared_ptr<RelativeBias> relative{};  // added to scores; whoever shares it visits it
    std::uint64_t pattern_seed = 0;  // of the key of heads.pattern, with the module's name
    ProductFiles files{};            // the parts: queries, keys, values
  };

  Attention(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// What the heads attended to, from queries, keys and values.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// x: (1, T, C) of one text or (B, 1, C) of several. `state`: of make_state. Throws Error where
  /// attention is two-way: later tokens would change what was said.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const override;
  /// With a window, beyond which no key is handed over, without a pattern, which counts blocks from a
  /// sequence's begin, and without a relative bias.
  bool goes_in_segments() const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor gate_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y,
                       const Tensor& product, const Pass& pass, const Stream& stream);
  /// Whether backward makes queries, keys and values again from the product, which is kept.
  bool prepares_anew(const Pass& pass) const {
    return preparation_.changes() || gate_ || convolution_ || pass.carry != nullptr;
  }
  /// Queries, keys and values as norms read them: without gates, or behind the convolution.
  Tensor plain(const Tensor& product, const Pass& pass, const Stream& stream);
  /// The sinks' values; none where there are no sinks.
  Weight held_sinks(const Stream& stream) const {
    return sinks_ ? sinks_->acquire(stream) : Weight();
  }
  /// With the bias of sequences of `time` tokens; as they are where there is none.
  kernels::AttentionSpec biased(std::int64_t time, const Stream& stream) const {
    return relative_ ? heads_.with_bias(relative_->values(time, stream)) : heads_;
  }
  Tensor attended(const Tensor& qkv, const Tensor& log_sum_exp, const Pass& pass,
                  const Stream& stream) const;
  /// They, behind what is carried.
  Tensor joined(const Tensor& product, const Pass& pass, const Stream& stream) {
    return carried_.joined(plain(product, pass, stream), pass, stream);
  }
  /// It normed and rotated by `angles`; in place, unless backward is to have it too.
  Tensor prepared(const Tensor& product, const RotaryTable::Angles& angles, const Pass& pass,
                  bool in_place, const Stream& stream);
  /// Of sequences of `time` positions.
  RotaryTable::Angles angles(std::int64_t time, const Pass& pass, const Stream& stream) {
    return preparation_.angles(carried_.positions_end(pass, time), pass, stream);
  }
  std::int64_t inner() const { return heads_.queries * head_size_; }
  kernels::AttentionSpec heads_;
  std::optional<AttentionSinks> sinks_;
  std::shared_ptr<RelativeBias> relative_;  // or null
  std::int64_t head_size_;
  HeadPreparation preparation_;
  std::optional<AttentionGate> gate_;
  std::optional<TokenConvolution> convolution_;
  CarriedKeys carried_;
};

}  // namespace hybrid_trainer
