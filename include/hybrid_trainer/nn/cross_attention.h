#pragma once

#include <utility>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What an encoder made of a batch's sources, and its gradient: all layers of a decoder that attend to
/// it hold one in common. The model sets it before the decoder runs, and takes its gradient when all
/// of them have gone backward.
class EncoderOutput {
 public:
  /// values: (B, S, C), lengths: (B) i32, tokens of each row, or undefined: all. What was there before
  /// goes, and its gradient.
  void set(Tensor values, Tensor lengths = {}) {
    values_ = std::move(values);
    lengths_ = std::move(lengths);
    gradient_ = {};
    ++version_;
  }
  /// Frees values, lengths and gradient.
  void drop() { set({}); }
  const Tensor& values() const { return values_; }
  const Tensor& lengths() const { return lengths_; }
  /// Differs from that of what was set before.
  std::int64_t version() const { return version_; }

  /// Whether anybody asks for the gradient; if not, as where the encoder is frozen, nobody computes it.
  bool wants_gradient() const { return wants_gradient_; }
  void want_gradient(bool wanted) { wants_gradient_ = wanted; }
  /// Adds a layer's part, of the values' shape. The first part's memory holds the sum.
  void add_gradient(const Tensor& part, const Stream& stream);
  /// The sum of the parts so far, in the dtype of activations; undefined where there is none.
  Tensor take_gradient() { return std::exchange(gradient_, {}); }

  /// In generation, so many texts in a row read one row of values, as those of a beam search do.
  std::int64_t texts_per_source() const { return texts_per_source_; }
  void set_texts_per_source(std::int64_t texts);

 private:
  Tensor values_, lengths_, gradient_;
  std::int64_t version_ = 0, texts_per_source_ = 1;
  bool wants_gradient_ = true;
};

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
  Tensor rebuild(const Tensor& queries, const Pass& pass, const Stream& stream) override {
    return keys_values(pass_of_source(pass, queries), stream);
  }
  /// x: (1, T, C) of one text or (B, T, C) of several. `state` keeps the keys and values of all
  /// sources, made when the first text that reads them begins.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override {
    TwoProductBranch::initialize(deviations, seed, stream);
    initialize_normal(source_keys_.weight(), deviations.matrix, seed, stream);
  }
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    source_keys_.visit_parameters(visit);
    projection_.visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override {
    visit(first_);
    visit(source_keys_);
    visit(projection_);
  }

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
  double source_share() const {
    if (source_length_ == 0 || text_length_ == 0) return 1;
    return static_cast<double>(source_length_) / static_cast<double>(text_length_);
  }
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
