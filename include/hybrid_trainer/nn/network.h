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

class TextHead;

/// Preference loss over pairs of answers, with its measures.
class PreferenceLoss {
 public:
  /// Sums over the pairs since the last call of take.
  struct Measures {
    double reward_chosen = 0, reward_rejected = 0, right = 0, pairs = 0;
    Measures& operator+=(const Measures& other);
  };
  void set_form(const kernels::PreferenceForm& form) { form_ = form; }
  const kernels::PreferenceForm& form() const { return form_; }

  /// Results of `weigh`; see kernels::preference_loss.
  struct PreferenceWeights {
    Tensor pair_losses;  // (B·T) f32
    Tensor weights;      // (B·T) f32
  };
  /// Computes the pair losses and weights from the losses of a batch's targets, (B·T) f32. Adds the
  /// batch to the measures if `counts`.
  PreferenceWeights weigh(const Tensor& losses, const Batch& batch, bool counts,
                          const Stream& stream);

  /// Resets the measures.
  void clear(const Stream& stream);
  /// Returns the measures and resets them. Blocks.
  Measures take(const Stream& stream);
  /// Returns the log-likelihoods of the last batch's halves, (B, T) f64 on the stream's device.
  const Tensor& sums() const { return sums_; }

 private:
  kernels::PreferenceForm form_;
  Tensor measures_;  // undefined before the first measurement
  Tensor sums_;
};

/// A model that the phase machine trains, with a single loss. User-defined models implement the
/// three pure virtual functions. With several ranks, these functions must acquire the same weights
/// and complete the same gradients in the same order for every batch of any size.
class LossModel {
 public:
  virtual ~LossModel() = default;
  /// Returns the mean loss of the batch, (1) f64 on the stream's device, to be read with
  /// kernels::wait_for_value. If tape.keeps(), saves activations for backward; `gradient_scale`
  /// multiplies the gradient of the loss (1/micro-batches if accumulated). Does not block.
  virtual Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Writes all parameters' gradients for the last forward on this tape.
  virtual void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// Visits the routing statistics of backward passes; by default none.
  virtual void visit_routings(const RoutingVisitor&) {}
  /// Returns the preference loss for batches that have "halves"; null if unsupported.
  virtual PreferenceLoss* preference() { return nullptr; }
  /// Returns the head of a model of whole texts (model.pooling), else null.
  virtual TextHead* text_head() { return nullptr; }
  /// Returns whether Pass::segment is supported.
  virtual bool supports_segments() const { return false; }
  /// Returns whether long sequences are processed in segments by default.
  virtual bool carries_state() const { return false; }
  static constexpr std::int64_t kMaxUnsegmentedTime = 4096;  // longest unsegmented by default
  /// Returns Pass::segment for sequences of `time` tokens, given memory.segment_length `wanted`. If
  /// that is 0, segments only long sequences of models with state. Returns 0 for whole sequences.
  std::int64_t segment_for(std::int64_t wanted, std::int64_t time) const;
  /// Returns how often backward contributes to each gradient, for this Pass::segment.
  virtual std::int64_t contributions(const Batch& /*batch*/, std::int64_t /*segment*/) const {
    return 1;
  }
  /// Returns the number of weights without padding; by default all that visit_parameters visits.
  virtual std::int64_t parameter_count();
  /// Returns the FLOPs of forward and backward for the batch. By default counts two per weight and
  /// token in forward, two in backward, and two more in backward for trained weights.
  virtual double step_flops(const Batch& batch);
};

/// Returns all parameters in visiting order, including frozen ones.
inline std::vector<Parameter*> all_parameters(LossModel& model) {
  std::vector<Parameter*> parameters;
  model.visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
  return parameters;
}

/// Returns the trainable parameters in visiting order.
inline std::vector<Parameter*> trainable_parameters(LossModel& model) {
  std::vector<Parameter*> parameters;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.trainable()) parameters.push_back(&parameter);
  });
  return parameters;
}

/// Settings of the parts whose names match a pattern, such as "video.*".
struct PartSettings {
  std::string pattern;
  /// Share of activations that backward recomputes, 0 to 1; none: the run's setting.
  std::optional<double> recompute{};
  /// Dtype of activations and products; none: the phase's setting.
  std::optional<DType> dtype{};
};

/// A quality measure such as accuracy. The mean is sum/count; values of several batches are added.
struct Measure {
  std::string name;  // "events.accuracy"
  double sum = 0, count = 0;
};

/// Shape of a run's batches, as far as the configuration determines it.
struct BatchForm {
  std::int64_t examples = 1;
  std::int64_t sequence_length = 1;  // of texts
  bool is_rows = false;              // separate examples instead of windows of a text
  bool has_pairs = false;            // rows are better and worse answers
  /// Set for a loss of whole texts; see TextBatchForm.
  struct Labels {
    bool are_classes = false;
    std::int64_t numbers = 0;
  };
  std::optional<Labels> texts{};
};

/// A model of named parts, with adapters, separate locations of weights, and settings per part.
class Network : public LossModel {
 public:
  /// Visits the linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
  /// Returns patterns of the weights' names, in order of use. Weights of different patterns can
  /// have different locations (see DeviceMap).
  virtual std::vector<std::string> parts() const { return {"*"}; }
  /// See WeightStorage::round_inputs.
  void round_inputs(bool rounds) {
    visit_parameters([&](Parameter& parameter) { parameter.storage().round_inputs(rounds); });
  }
  /// Allocates an uninitialized training batch: all tensors, with name, shape and dtype. Used to
  /// plan and measure memory. Throws OutOfMemory.
  virtual Batch empty_batch(const BatchForm& form, const Stream& stream) const = 0;
  /// Returns the FLOPs that backward adds if `share` of a batch's activations is recomputed (see
  /// Recomputation). Excludes activation functions and norms, which are bound by bandwidth.
  virtual double recomputed_flops(const Batch& /*batch*/, double /*share*/) { return 0; }
  /// Returns the batch's measures in an evaluation pass. Blocks. By default none.
  virtual std::vector<Measure> wait_for_measures(const Batch& /*batch*/, const Pass& /*pass*/,
                                                 const Stream& /*stream*/) {
    return {};
  }
  /// Returns the predictions of a batch in an evaluation pass, f32 in host memory, each with the
  /// name of the loss that reads it. Blocks. By default none.
  virtual std::vector<NamedTensor> wait_for_predictions(const Batch& /*batch*/,
                                                        const Pass& /*pass*/,
                                                        const Stream& /*stream*/) {
    return {};
  }
  /// Configures parts. Throws ConfigError if a pattern matches no part, or if two match the same
  /// part. By default, a network has no settings per part and throws ConfigError for any.
  virtual void set_parts(const std::vector<PartSettings>& settings) {
    for (const PartSettings& part : settings)
      throw ConfigError(
          {"parts: got " + part.pattern +
           " with recompute or precision, but this model does not support them per part; want "
           "memory.recompute and mixed_precision, which apply to the whole model"});
  }
};

}  // namespace hybrid_trainer
