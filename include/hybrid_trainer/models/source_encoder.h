#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// What a sequence-to-sequence model reads its source with, before its decoder writes.
class SourceEncoder {
 public:
  virtual ~SourceEncoder() = default;
  /// (B, S, C) in the pass's dtype, from the batch's tensors of the source.
  virtual Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  /// Of the last forward, of this batch and on this tape; dy: the gradient of its result, which may be
  /// overwritten.
  virtual void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                        const Stream& stream) = 0;
  /// Tokens of each source that the decoder may read, (B) i32; undefined: all.
  virtual Tensor lengths(const Batch& /*batch*/) const { return {}; }
  /// Whether backward has anything to do. Adapters of the decoder alone leave the encoder as it is.
  virtual bool trains() {
    bool trains = false;
    visit_parameters([&](Parameter& parameter) { trains |= parameter.trainable(); });
    return trains;
  }
  /// The tensors of so many sources, zeros: what a batch has beside tokens and targets.
  virtual std::vector<NamedTensor> empty_sources(std::int64_t count,
                                                 const Stream& stream) const = 0;
  /// Draws the first weights from the seed.
  virtual void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) = 0;
  /// Rows of its result for one source.
  virtual std::int64_t places() const = 0;
  /// Of one source.
  virtual TokenFlops flops() const = 0;
  virtual double recomputed_flops(double share) const = 0;
  /// Its own, not the decoder's token table, which it may read.
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// The linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor& visit) = 0;
  /// See LanguageModel::parts.
  virtual std::vector<std::string> parts() const = 0;
};

}  // namespace hybrid_trainer
