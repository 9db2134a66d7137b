#pragma once

#include <utility>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The encoder's output for a batch, and its gradient, shared by all decoder layers. The model sets
/// the output before the decoder runs, and takes the gradient after its backward.
class EncoderOutput {
 public:
  /// Sets the output (B, S, C) and drops the gradient. `lengths`: (B) i32, number of valid tokens
  /// per source, or undefined if all S are valid.
  void set(Tensor values, Tensor lengths = {}) {
    values_ = std::move(values);
    lengths_ = std::move(lengths);
    gradient_ = {};
    ++version_;
  }
  void drop() { set({}); }
  const Tensor& values() const { return values_; }
  const Tensor& lengths() const { return lengths_; }
  /// Returns a number that changes with every call of set.
  std::int64_t version() const { return version_; }

  /// Returns whether the gradient is needed. It is not if the encoder is frozen, for example.
  bool requires_gradient() const { return requires_gradient_; }
  void set_requires_gradient(bool wanted) { requires_gradient_ = wanted; }
  /// Adds a layer's gradient. May overwrite the tensor of the first call.
  void add_gradient(const Tensor& part, const Stream& stream);
  /// Returns the sum of the gradients, in the dtype of activations, or an undefined tensor if there
  /// is none.
  Tensor take_gradient() { return std::exchange(gradient_, {}); }

  /// Returns the number of consecutive texts, such as beams, that share one source.
  std::int64_t texts_per_source() const { return texts_per_source_; }
  void set_texts_per_source(std::int64_t texts) {
    require(texts >= 1, "encoder output: want at least 1 text per source");
    texts_per_source_ = texts;
  }

 private:
  Tensor values_, lengths_, gradient_;
  std::int64_t version_ = 0, texts_per_source_ = 1;
  bool requires_gradient_ = true;
};

/// Multi-head attention of a decoder to an encoder's output: y = residual +
/// c_proj(attention(c_q(x), c_kv(source))). The rows of c_kv are all keys, followed by all values.
/// Queries have no positional encoding and attend to all tokens of the source.
class CrossAttention final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;         // C of the residual stream
    std::int64_t source_width = 0;  // width of the encoder's output; 0 for `width`
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;  // channels of each query, key and value
    bool biases = true;          // biases of c_q and c_kv
    bool key_bias = true;        // bias of the keys in c_kv, if there are biases
    bool output_bias = true;     // bias of c_proj
    std::shared_ptr<EncoderOutput> source{};
    /// Numbers of tokens of a source and of a text, for the FLOPs per token; 0: equal lengths.
    std::int64_t source_length = 0, text_length = 0;
    ProductFiles files{};  // the parts: queries, keys, values
  };

  CrossAttention(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Throws ShapeMismatch if the source has a different number of sequences or a different width.
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& queries, const Pass& pass, const Stream& stream) override {
    return keys_values(pass_of_source(pass, queries), stream);
  }
  /// Decodes x, (1, T, C) or (B, T, C). `state` caches the keys and values of all sources.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
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
  Pass pass_of_source(Pass pass, const Tensor& text) const {
    pass.first_token = pass.first_token / text.size(1) * checked_source().size(1);
    return pass;
  }
  Tensor keys_values(const Pass& of_source, const Stream& stream) {
    return source_keys_.product(checked_source(), Tensor{}, of_source, stream);
  }
  void source_backward(const Tensor& dkeys_values, const Pass& of_source, const Stream& stream);
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
