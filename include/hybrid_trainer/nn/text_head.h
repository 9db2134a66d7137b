#pragma once

#include "hybrid_trainer/kernels/texts.h"
#include "hybrid_trainer/nn/head_transform.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/text_loss.h"

namespace hybrid_trainer {

/// Pools each text (see empty_text_batch), maps it to the outputs of a class head or linear layers,
/// if any, and computes the loss of TextLoss.
class TextHead {
 public:
  struct Spec {
    kernels::Pooling pooling = kernels::Pooling::kMean;
    std::int64_t width = 0;                          // width of the hidden states
    std::optional<HeadTransform::Spec> transform{};  // transform before the class head
    std::vector<HeadTransform::Spec> dense{};        // linear layers; only without a class head
    std::int64_t outputs = 0;                        // outputs of the class head; 0: no class head
    ModuleName head{"score"};
    bool head_bias = false;
  };
  TextHead(const Spec& spec, const Stream& stream);

  std::int64_t outputs() const;
  void set_loss(TextLoss loss) { loss_ = std::move(loss); }
  const TextLoss& text_loss() const { return loss_; }
  /// Returns the mean loss of the batch's examples, (1) f64, for hidden states (B·T, width). If
  /// tape.keeps(), saves the tensors for backward.
  Tensor loss(const Tensor& hidden, const Batch& batch, float gradient_scale, ActivationTape& tape,
              const Stream& stream);
  /// Returns the gradient of the hidden states, (B·T, width) in `dtype`, after `loss`.
  Tensor backward(const Batch& batch, DType dtype, ActivationTape& tape, const Stream& stream);
  /// Returns the outputs of each text slot, (B·S, outputs()) f32; empty slots are undefined.
  Tensor output(const Tensor& hidden, const Batch& batch, ActivationTape& tape,
                const Stream& stream);
  /// Initializes the weights with normally distributed values.
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  void visit_linears(const LinearVisitor& visit);
  /// Return whether a parameter's name belongs to the head, or to its last linear map.
  bool owns(const Parameter& parameter) const;
  bool is_last(const Parameter& parameter) const;
  /// Returns the names of the head's linear maps.
  std::vector<std::string> parts() const;

 private:
  Spec spec_;
  std::vector<std::unique_ptr<HeadTransform>> transforms_;
  std::unique_ptr<Linear> head_;  // or null
  TextLoss loss_;
};

}  // namespace hybrid_trainer
