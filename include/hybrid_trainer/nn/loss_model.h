#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/preference_loss.h"
#include "hybrid_trainer/nn/routing_count.h"

namespace hybrid_trainer {

/// A model that the phase machine trains: a model that ends in one loss. A user's own model
/// implements these three calls. Over several ranks, which weights they acquire and which gradients
/// they complete, and in which order, must not depend on the batch, nor on how many examples it
/// has.
class LossModel {
 public:
  virtual ~LossModel() = default;
  /// Mean loss of the batch, (1) f64 on the stream's device, for kernels::wait_for_value to read.
  /// Where the tape keeps, forward saves for backward; `gradient_scale` multiplies the gradient of
  /// the loss (1/micro-batches when gradients are accumulated). Does not block.
  virtual Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Writes all parameters' gradients for the last forward on this tape.
  virtual void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// What its routers have counted in backward passes; by default it has none.
  virtual void visit_routings(const RoutingVisitor&) {}
  /// Its loss of pairs of answers, for batches that have "halves"; null where it has none.
  virtual PreferenceLoss* preference() { return nullptr; }
  /// Whether it heeds Pass::segment.
  virtual bool goes_in_segments() const { return false; }
  /// Whether long sequences go in segments where the settings leave that open.
  virtual bool carries_state() const { return false; }
  static constexpr std::int64_t kWholeUpTo = 4096;  // tokens of a sequence that usually goes whole
  /// Pass::segment of sequences of `time` tokens, where memory.segment_length is `wanted`. Where that
  /// is 0, long sequences of a model that carries a state go in segments; 0 means whole ones.
  std::int64_t segment_for(std::int64_t wanted, std::int64_t time) const;
  /// How often backward contributes to each gradient where Pass::segment is so long.
  virtual std::int64_t contributions(const Batch& /*batch*/, std::int64_t /*segment*/) const {
    return 1;
  }
  /// Values of all weights, without padding; by default those of visit_parameters.
  virtual std::int64_t parameter_count();
  /// Floating-point operations of forward and backward over the batch; by default those of one
  /// product of each weight with each token: two each way and two for the gradient of a weight that
  /// is trained.
  virtual double step_flops(const Batch& batch);
};

/// Also frozen ones, in visiting order.
inline std::vector<Parameter*> all_parameters(LossModel& model) {
  std::vector<Parameter*> parameters;
  model.visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
  return parameters;
}

/// In visiting order.
inline std::vector<Parameter*> trainable_parameters(LossModel& model) {
  std::vector<Parameter*> parameters;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.trainable()) parameters.push_back(&parameter);
  });
  return parameters;
}

}  // namespace hybrid_trainer
