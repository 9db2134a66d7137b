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

/// The gates of attention: σ(gate) multiplies each number of what the heads attended to. A row of the
/// first product has the queries' columns, as many gates, then keys and values.
class AttentionGate {
 public:
  /// `columns`: of the queries of a token.
  explicit AttentionGate(std::int64_t columns) : columns_(columns) {}
  /// Queries, keys and values of a product, (B, T, any).
  Tensor without_gates(const Tensor& product, const Stream& stream) const;
  /// y, (B, T, columns), times the gates.
  Tensor apply(const Tensor& y, const Tensor& product, const Stream& stream) const;
  /// dy, the gradient of apply's result, becomes that of y; writes dproduct's gates.
  void backward(const Tensor& dproduct, const Tensor& dy, const Tensor& y, const Tensor& product,
                const Stream& stream) const;
  /// The other columns of dproduct.
  void put_without_gates(const Tensor& dproduct, const Tensor& dqkv, const Stream& stream) const;

 private:
  std::int64_t columns_;
};

/// RMS norms of attention's queries and keys, each head by itself: the heads of queries share the gain
/// "<name>.q_norm.weight" (head_size), those of keys "<name>.k_norm.weight". Or `whole`: over all heads
/// together, with gains for all of their channels.
class HeadNorms {
 public:
  HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads, std::int64_t head_size,
            const kernels::RmsNormSpec& norm, bool whole, const Stream& stream);
  /// In place, of qkv: rows of all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const Stream& stream);
  /// Makes of the results' gradient that of `qkv`, which forward was given; in place.
  void backward(const Tensor& dqkv, const Tensor& qkv, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    visit(queries_);
    visit(keys_);
  }

 private:
  kernels::RmsNormSpec norm_;
  kernels::HeadRange query_heads_, key_heads_;
  Parameter queries_, keys_;
};

/// What queries, keys and values go through before they attend: norms of queries and keys, a limit of all,
/// and rotation of queries and keys by their positions; any of these or none.
class HeadPreparation {
 public:
  struct Spec {
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;
    std::optional<kernels::RmsNormSpec> norm{};
    bool norms_all_heads = false;  // the norm is of all heads of queries, and of keys, together
    float limit = 0;               // all are cut to [−limit, limit]; 0: they are not
    std::shared_ptr<RotaryTable> rotary{};
  };
  HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Whether anything but rotation, which backward undoes, is done.
  bool changes() const { return norms_ || limit_ > 0; }
  /// Null where nothing is rotated.
  RotaryTable* rotary() const { return rotary_.get(); }
  /// Whether a token's angle depends on where it is alone, if there is any.
  bool is_relative() const { return rotary_ == nullptr || rotary_->is_relative(); }
  /// Of sequences that go through at once and end at position `end`; undefined if nothing is rotated.
  RotaryTable::Angles angles(std::int64_t end, const Pass& pass, const Stream& stream) const {
    if (rotary_ == nullptr) return {};
    return rotary_->of_sequences(end, static_cast<bool>(pass.positions), stream);
  }
  /// In place, of qkv (B, T, …): rows of all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
               const Stream& stream);
  /// Makes of the results' gradient that of what forward was given, `from`, which is read where it
  /// changes(); in place.
  void backward(const Tensor& dqkv, const Tensor& from, const RotaryTable::Angles& angles,
                const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    if (norms_) norms_->visit_parameters(visit);
  }

 private:
  void rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
              kernels::Rotation rotation, const Stream& stream) const;
  std::int64_t turned_heads_, head_size_;
  std::optional<HeadNorms> norms_;
  float limit_;
  std::shared_ptr<RotaryTable> rotary_;
};

/// The keys and values in the tokens before a segment that its queries see: as many as a window
/// reaches back, before norms and rotation. Attention runs over them and the segment's own, and what it
/// makes for tokens of earlier segments is dropped.
class CarriedKeys {
 public:
  CarriedKeys(const kernels::AttentionSpec& heads, std::int64_t head_size)
      : heads_(heads), head_size_(head_size) {}

  /// How many tokens before its own a pass's segment looks at; 0 where it is of no segment.
  std::int64_t before(const Pass& pass) const;
  /// (B, before + T, columns): rows of qkv (B, T, columns) behind those that the segment begins with,
  /// whose queries are 0. Fills in what the next segment begins with, if the pass's carry wants it.
  Tensor joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const;
  /// The pass with the positions of the joined rows, if it has some.
  Pass joined(const Pass& pass, std::int64_t time, const Stream& stream) const;
  /// Positions that rotate the joined rows of `time` tokens are below this.
  std::int64_t positions_end(const Pass& pass, std::int64_t time) const {
    if (pass.carry != nullptr && pass.positions) return pass.carry->place().positions.size(1);
    return before(pass) + time;
  }
  /// Rows x (B, T, columns) behind rows of 0; and the last T rows of such joined ones.
  Tensor behind_zeros(const Tensor& x, const Pass& pass, const Stream& stream) const;
  Tensor own(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  /// The gradient of qkv from that of what was joined: adds what the next segment makes of its last
  /// rows, and hands over that of the first ones.
  Tensor backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const;

 private:
  SegmentCarry::Slot& slot(const Pass& pass) const { return pass.carry->of(this); }
  void fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  std::int64_t first_column() const { return heads_.queries * head_size_; }
  std::int64_t columns() const { return 2 * heads_.keys * head_size_; }

  kernels::AttentionSpec heads_;
  std::int64_t head_size_;
};

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
  bool goes_in_segments() const override {
    return heads_.window > 0 && !heads_.two_way && !convolution_ && !relative_ &&
           !heads_.pattern.is_on() && preparation_.is_relative();
  }
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override {
    TwoProductBranch::initialize(deviations, seed, stream);
    if (convolution_) convolution_->initialize(seed, stream);
  }
  TokenFlops flops(std::int64_t time) const override {
    return flops_with(4 * kernels::keys_seen(heads_, time) * static_cast<double>(inner()), 2);
  }
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
    return sinks_ ? sinks_->acquire_master(stream) : Weight();
  }
  /// Contributes their gradient, from what the heads attended to, y, and its gradient.
  void sinks_backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                      const Stream& stream);
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
  std::optional<Parameter> sinks_;
  std::shared_ptr<RelativeBias> relative_;  // or null
  std::int64_t head_size_;
  HeadPreparation preparation_;
  std::optional<AttentionGate> gate_;
  std::optional<TokenConvolution> convolution_;
  CarriedKeys carried_;
};

}  // namespace hybrid_trainer
