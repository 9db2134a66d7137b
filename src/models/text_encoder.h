#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/embedding.h"
#include "src/models/block_encoder.h"

namespace hybrid_trainer {

/// BART's encoder of text: the decoder's token table, learned positions, a norm of the two, and blocks of
/// residual branches. Its batches have "source_tokens" (B, S) i32, "source_positions" (B, S) i32, which
/// are 0 where a source begins and again where its padding does, and "source_lengths" (B) i32, without
/// padding. No token sees padding.
class TextEncoder final : public BlockEncoder {
 public:
  /// `embedding`: with the decoder's token table.
  TextEncoder(const Spec& spec, const Embedding::Spec& embedding, const Stream& stream);

  Tensor lengths(const Batch& batch) const override { return batch.at("source_lengths"); }
  bool trains() override;
  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override;

 private:
  void set_positions(const Batch& batch, ActivationTape& tape) const override;
  Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                      const Stream& stream) override;
  void initialize_begin(const FirstDeviations& deviations, std::uint64_t seed,
                        const Stream& stream) override;
  void visit_parameters_of_begin(const ParameterVisitor& visit) override;
  std::vector<std::string> parts_of_begin() const override { return {"encoder.wpe.*"}; }
  Embedding embedding_;
  std::unique_ptr<Norm> embedding_norm_;
};

}  // namespace hybrid_trainer
