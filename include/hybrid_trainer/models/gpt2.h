#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/transformer_block.h"

namespace hybrid_trainer {

/// GPT-2: token and position embedding, pre-norm blocks, final LayerNorm, head tied to the token
/// table. Parameters have Hugging Face's names; matrices are stored (outputs, inputs). The token
/// table's rows are padded (see padded_vocabulary); padding rows are 0 and stay 0. Source: Radford
/// et al. 2019.
class Gpt2 final : public LossModel {
 public:
  /// Weights drawn from `seed`: standard deviation 0.02, for matrices other than the tables larger
  /// by √(768/width) below width 768; residual projections over √(2·layers). Throws OutOfMemory.
  Gpt2(const ModelConfig& config, std::uint64_t seed, const Stream& stream);

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;

  /// Logits of all positions, (B·T, padded vocabulary) f32 or bf16. tokens: (B, T) i32.
  Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream);
  /// Generation: logits of the last position of tokens (B, T), (B, padded vocabulary). At position
  /// 0 the whole prompt goes through and fills the caches; later one token (B, 1) at a time.
  Tensor next_logits(const Tensor& tokens, std::int64_t position,
                     const std::vector<KeyValueCache>& caches, const Pass& pass,
                     const Stream& stream);
  std::vector<KeyValueCache> make_caches(std::int64_t batch, DType dtype,
                                         const Stream& stream) const;

  const ModelConfig& config() const { return config_; }
  std::int64_t parameter_count();  // without padding

 private:
  Tensor hidden(const Tensor& tokens, ActivationTape& tape, const Stream& stream);
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;
  ModelConfig config_;
  Embedding embedding_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  LayerNorm final_norm_;
  LanguageHead head_;
};

/// Rows of the token table: a multiple of 64 from 512 tokens on, of 16 below.
std::int64_t padded_vocabulary(std::int64_t vocabulary);

/// Floating-point operations of forward and backward for one batch: 6 per token and weight of every
/// matrix product, plus causal attention's products (half of the full square).
double gpt2_step_flops(const ModelConfig& config, std::int64_t batch, std::int64_t time);

/// Problems of a model shape, with JSON paths under "model".
void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
