#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/models/encoder_config.h"
#include "hybrid_trainer/models/source_encoder.h"
#include "hybrid_trainer/nn/block_stack.h"
#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

/// An encoder of residual blocks, "encoder.h.0" and so on, alike. Those who derive from it say what
/// makes the blocks' input of a source.
class BlockEncoder : public SourceEncoder {
 public:
  struct Spec {
    EncoderConfig sizes;  // resolved
    ResidualSpec residual;
    LayerSpec layer;
  };

  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) final;
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                const Stream& stream) final;
  std::int64_t places() const final { return sizes_.source_places(); }
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) final;
  TokenFlops flops() const final;
  double recomputed_flops(double share) const final;
  void visit_parameters(const ParameterVisitor& visit) final;
  void visit_linears(const LinearVisitor& visit) final { blocks_.visit_linears(visit); }
  std::vector<std::string> parts() const final;

 protected:
  BlockEncoder(const Spec& spec, const Stream& stream);
  const EncoderConfig& sizes() const { return sizes_; }
  /// Behind the blocks; there is none at first.
  void set_final_norm(std::unique_ptr<Norm> norm) { final_norm_ = std::move(norm); }

 private:
  /// The places' positions, where blocks read them.
  virtual void set_positions(const Batch& /*batch*/, ActivationTape& /*tape*/) const {}
  /// What goes into the first block, before dropout, (B, S, C).
  virtual Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                              const Stream& stream) = 0;
  virtual void initialize_begin(const FirstDeviations& deviations, std::uint64_t seed,
                                const Stream& stream) = 0;
  virtual TokenFlops flops_of_begin() const { return {}; }
  virtual void visit_parameters_of_begin(const ParameterVisitor& visit) = 0;
  virtual std::vector<std::string> parts_of_begin() const = 0;
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;

  EncoderConfig sizes_;
  float dropout_;
  BlockStack blocks_;
  std::unique_ptr<Norm> final_norm_;  // or null
};

}  // namespace hybrid_trainer
