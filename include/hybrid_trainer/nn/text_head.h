#pragma once

#include "hybrid_trainer/kernels/texts.h"
#include "hybrid_trainer/nn/head_transform.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/text_loss.h"

namespace hybrid_trainer {

/// Pools the hidden states of each text of a batch to one vector (see empty_text_batch), maps it to
/// the outputs of a class head, if there is one, and computes the loss of TextLoss.
class TextHead {
 public:
  struct Spec {
    kernels::Pooling pooling = kernels::Pooling::kMean;
    std::int64_t width = 0;                          // of the hidden states
    std::optional<HeadTransform::Spec> transform{};  // before the class head
    std::int64_t outputs = 0;  // of the class head; 0: the vectors themselves are the output
    ModuleName head{"score"};
    bool head_bias = false;
  };
  TextHead(const Spec& spec, const Stream& stream);

  /// Returns the number of outputs of a text.
  std::int64_t outputs() const { return head_ != nullptr ? spec_.outputs : spec_.width; }
  void set_loss(TextLoss loss) { loss_ = std::move(loss); }
  const TextLoss& text_loss() const { return loss_; }
  /// Returns the mean loss of the batch's examples, (1) f64, for hidden states (B·T, width). If
  /// tape.keeps(), saves the tensors for backward.
  Tensor loss(const Tensor& hidden, const Batch& batch, float gradient_scale, ActivationTape& tape,
              const Stream& stream);
  /// Returns the gradient of the hidden states, (B·T, width) in `dtype`, their own, after loss.
  Tensor backward(const Batch& batch, DType dtype, ActivationTape& tape, const Stream& stream);
  /// Returns the same after output, given the gradient of the outputs, which it may overwrite.
  Tensor backward(const Batch& batch, Tensor doutputs, DType dtype, ActivationTape& tape,
                  const Stream& stream);
  /// Returns the outputs of each text slot, (B·S, outputs()) f32; rows of empty slots are undefined.
  Tensor output(const Tensor& hidden, const Batch& batch, ActivationTape& tape,
                const Stream& stream);
  /// Fills the maps with normal numbers.
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  void visit_linears(const LinearVisitor& visit);
  /// Returns whether a parameter, given by its name, belongs to the head, or to its last map.
  bool owns(const Parameter& parameter) const;
  bool is_last(const Parameter& parameter) const;
  /// Returns the names of its linear maps.
  std::vector<std::string> parts() const;

 private:
  Spec spec_;
  std::unique_ptr<HeadTransform> transform_;  // or null
  std::unique_ptr<Linear> head_;              // or null
  TextLoss loss_;
};

}  // namespace hybrid_trainer
