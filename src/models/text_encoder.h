#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/models/encoder_config.h"
#include "hybrid_trainer/models/source_encoder.h"
#include "hybrid_trainer/nn/block_stack.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

/// BART's encoder of text: the decoder's token table, learned positions, a norm of the two, and blocks of
/// residual branches.
class TextEncoder final : public SourceEncoder {
 public:
  struct Spec {
    EncoderConfig sizes;  // resolved
    ResidualSpec residual;
    LayerSpec layer;
    Embedding::Spec embedding;  // with the decoder's token table
  };
  TextEncoder(const Spec& spec, const Stream& stream);

  /// Of "source_tokens" (B, S) i32, "source_positions" (B, S) i32, which are 0 where a source begins and
  /// again where its padding does, and "source_lengths" (B) i32, without padding. No token sees padding.
  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                const Stream& stream) override;
  Tensor lengths(const Batch& batch) const override { return batch.at("source_lengths"); }
  bool trains() override;
  std::int64_t places() const override { return sizes_.source_places(); }
  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops() const override;
  double recomputed_flops(double share) const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override { blocks_.visit_linears(visit); }
  std::vector<std::string> parts() const override;

 private:
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;
  EncoderConfig sizes_;
  float dropout_;
  Embedding embedding_;
  std::unique_ptr<Norm> embedding_norm_;
  BlockStack blocks_;
};

}  // namespace hybrid_trainer
