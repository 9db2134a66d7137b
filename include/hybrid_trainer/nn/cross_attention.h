#pragma once

#include <memory>
#include <string>

#include "hybrid_trainer/kernels/cross_attention.h"
#include "hybrid_trainer/nn/encoder_output.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// Multi-head attention of a decoder to what an encoder made of a source: y = residual +
/// c_proj(attention(c_q(x), c_kv(source))); c_kv's rows are all keys, then all values. Queries have no
/// positions of their own, and see all tokens of the source.
class CrossAttention final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;         // C of the residual stream
    std::int64_t source_width = 0;  // of the encoder's output; 0: the same
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;  // of each query, key and value
    bool biases = true;          // of c_q and c_kv
    bool key_bias = true;        // of c_kv's keys, where there are any biases
    bool output_bias = true;     // of c_proj
    std::shared_ptr<EncoderOutput> source{};
    /// Tokens of a source and of a text, by which what it costs a token is told. 0: as many of both.
    std::int64_t source_length = 0, text_length = 0;
    ProductFiles files{};  // the parts: queries, keys, values
  };

  CrossAttention(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Throws ShapeMismatch where the source is not of as many sequences as x, or of another width.
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  /// Adds the gradient of the source to that of the encoder's output.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Keys and values again, from the encoder's output.
  Tensor rebuild(const Tensor&, const Pass& pass, const Stream& stream) override;
  /// x: (1, T, C) of one text or (B, T, C) of several. `state` keeps the keys and values of all
  /// sources, made when the first text that reads them begins.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;

 private:
  const Tensor& checked_source() const;
  void check_batch(const Tensor& x, const Tensor& source) const;
  /// The pass of the sources' tokens. `text`: (B, T, any).
  Pass pass_of_source(Pass pass, const Tensor& text) const;
  Tensor keys_values(const Pass& of_source, const Stream& stream) {
    return source_keys_.product(checked_source(), Tensor{}, of_source, stream);
  }
  void source_backward(const Tensor& dkeys_values, const Pass& of_source, const Stream& stream);
  /// Tokens of a source for each of a text.
  double source_share() const;
  double inner() const { return static_cast<double>(heads_.queries * head_size_); }
  double key_numbers() const { return static_cast<double>(2 * heads_.keys * head_size_); }
  std::string name_;
  kernels::AttentionSpec heads_;
  std::int64_t head_size_;
  Linear source_keys_;
  std::shared_ptr<EncoderOutput> source_;
  std::int64_t source_length_, text_length_;
};

}  // namespace hybrid_trainer
