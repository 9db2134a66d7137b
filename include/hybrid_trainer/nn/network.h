#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What a model's loss of pairs of answers is, and what it has measured.
class PreferenceLoss {
 public:
  /// Sums over pairs since the last call of take.
  struct Measures {
    double reward_chosen = 0, reward_rejected = 0, right = 0, pairs = 0;
    Measures& operator+=(const Measures& other);
  };
  void set_form(const kernels::PreferenceForm& form) { form_ = form; }
  const kernels::PreferenceForm& form() const { return form_; }

  /// What the losses of a batch's targets, (B·T) f32, come to: see kernels::preference_loss.
  struct Weighed {
    Tensor pair_losses;  // (B·T) f32
    Tensor weights;      // (B·T) f32
  };
  /// `counts`: whether the batch is added to what is measured.
  Weighed weigh(const Tensor& losses, const Batch& batch, bool counts, const Stream& stream);

  /// Starts to measure anew.
  void clear(const Stream& stream);
  /// What was measured since then, and clears it. Waits for it.
  Measures take(const Stream& stream);
  /// Log-likelihoods of the halves of the last batch, (B, T) f64 on the stream's device.
  const Tensor& sums() const { return sums_; }

 private:
  kernels::PreferenceForm form_;
  Tensor measures_;  // undefined where nothing was measured yet
  Tensor sums_;
};

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

/// How the parts of a network compute whose names match a pattern, such as "video.*".
struct PartSettings {
  std::string pattern;
  /// Share of its activations that backward computes again, 0 to 1; none: as the whole run says.
  std::optional<double> recompute{};
  /// Of its activations and products; none: as the phase says.
  std::optional<DType> dtype{};
};

/// How good a network is at a batch beside its loss, such as the share of right answers: the mean is
/// sum/count, and those of several batches are added.
struct Measure {
  std::string name;  // "events.accuracy"
  double sum = 0, count = 0;
};

/// What the batches of a run look like, as far as its configuration says.
struct BatchForm {
  std::int64_t examples = 1;
  std::int64_t sequence_length = 1;  // of texts
  bool is_rows = false;              // of examples, not windows of a text
  bool has_pairs = false;            // rows of better and worse answers
};

/// A model that consists of parts with names: they get adapters, their weights lie in different
/// places, and each may compute in its own way.
class Network : public LossModel {
 public:
  /// Its linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
  /// Patterns of the weights' names, in the order in which a pass uses the weights: what can lie in
  /// different places (see DeviceMap).
  virtual std::vector<std::string> parts() const { return {"*"}; }
  /// See WeightStorage::round_inputs.
  void round_inputs(bool rounds) {
    visit_parameters([&](Parameter& parameter) { parameter.storage().round_inputs(rounds); });
  }
  /// A batch as training gives it, not initialised: all its tensors, by name, shape and dtype. Memory
  /// is planned and measured with it. Throws OutOfMemory.
  virtual Batch empty_batch(const BatchForm& form, const Stream& stream) const = 0;
  /// Operations that backward adds where `share` of a batch's activations is computed again (see
  /// Recomputation); activation functions and norms, which are bytes rather than operations, not
  /// counted.
  virtual double recomputed_flops(const Batch& /*batch*/, double /*share*/) { return 0; }
  /// The batch's measures, of a forward pass that is not for training. Blocks. By default none.
  virtual std::vector<Measure> wait_for_measures(const Batch& /*batch*/, const Pass& /*pass*/,
                                                 const Stream& /*stream*/) {
    return {};
  }
  /// Says how parts compute. Throws ConfigError where a pattern matches no part, where two match the
  /// same one, or where this network's parts all compute alike, as by default.
  virtual void set_parts(const std::vector<PartSettings>& settings) {
    for (const PartSettings& part : settings)
      throw ConfigError({"parts: got " + part.pattern +
                         " with recompute or precision, but this model's parts compute alike; want "
                         "memory.recompute and mixed_precision, which hold for all of it"});
  }
};

}  // namespace hybrid_trainer
