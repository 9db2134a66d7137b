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
  /// Sums over all pairs since the last call of `take`.
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
  /// batch to the measures if `counts` is set.
  PreferenceWeights weigh(const Tensor& losses, const Batch& batch, bool counts,
                          const Stream& stream);

  void clear(const Stream& stream);
  /// Returns the measures and resets them. Blocks.
  Measures take(const Stream& stream);
  /// Returns the log-likelihoods of the last batch's chosen and rejected texts, (B, T) f64 on the
  /// device.
  const Tensor& sums() const { return sums_; }

 private:
  kernels::PreferenceForm form_;
  Tensor measures_;  // undefined before the first measurement
  Tensor sums_;
};

/// A model with a single loss, which HybridTrainer can train. The three pure virtual functions must
/// acquire the same weights and complete the same gradients in the same order on all ranks.
class LossModel {
 public:
  virtual ~LossModel() = default;
  /// Returns the mean loss, (1) f64 on the stream's device. If tape.keeps(), saves activations for
  /// backward, which multiplies the gradient by `gradient_scale` (1/micro-batches if gradients are
  /// accumulated). Does not block.
  virtual Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Writes the gradients of all parameters for the last forward on this tape.
  virtual void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// Visits the routing statistics of the model's routers. By default there are none.
  virtual void visit_routings(const RoutingVisitor&) {}
  /// Returns the preference loss, which batches with "halves" use, or null if unsupported.
  virtual PreferenceLoss* preference() { return nullptr; }
  /// Returns the head of a model that pools texts (model.pooling), else null.
  virtual TextHead* text_head() { return nullptr; }
  /// Returns whether Pass::segment is supported.
  virtual bool supports_segments() const { return false; }
  /// Returns whether long sequences are processed in segments by default.
  virtual bool carries_state() const { return false; }
  /// Longest sequence that is not segmented by default.
  static constexpr std::int64_t kMaxUnsegmentedTime = 4096;
  /// Returns Pass::segment for sequences of `time` tokens; 0 means whole sequences. `wanted`:
  /// memory.segment_length. If it is 0, only long sequences of models with state are segmented.
  std::int64_t segment_for(std::int64_t wanted, std::int64_t time) const;
  /// Returns the number of contributions of backward to each gradient if Pass::segment is
  /// `segment`.
  virtual std::int64_t contributions(const Batch& /*batch*/, std::int64_t /*segment*/) const {
    return 1;
  }
  /// Returns the number of weights, excluding padding. The default counts all elements.
  virtual std::int64_t parameter_count();
  /// Returns the FLOPs of a step, by default 4 per token and frozen weight, and 6 per token and
  /// trained weight.
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
  std::optional<double> recompute{};  // share from 0 to 1; none: the run's setting
  std::optional<DType> dtype{};       // none: the phase's setting
};

/// A quality measure with mean sum/count. To combine batches, add their sums and their counts.
struct Measure {
  std::string name;  // "events.accuracy"
  double sum = 0, count = 0;
};

/// The properties of a run's batches that follow from the configuration.
struct BatchForm {
  std::int64_t examples = 1;
  std::int64_t sequence_length = 1;  // in tokens
  bool is_rows = false;              // sequences are rows of examples, not windows of a text
  bool has_pairs = false;            // examples are pairs of a chosen and a rejected answer
  struct Labels {
    bool are_classes = false;
    std::int64_t numbers = 0;
  };
  std::optional<Labels> texts{};
};

/// A model with named parts, which supports adapters, placements of weights, and settings per part.
class Network : public LossModel {
 public:
  /// Visits the linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
  /// Returns patterns that together match all weight names, in order of use (see DeviceMap).
  virtual std::vector<std::string> parts() const { return {"*"}; }
  /// Calls WeightStorage::round_inputs for all weights.
  void round_inputs(bool rounds) {
    visit_parameters([&](Parameter& parameter) { parameter.storage().round_inputs(rounds); });
  }
  /// Allocates an uninitialized batch to plan and measure memory. Throws OutOfMemory.
  virtual Batch empty_batch(const BatchForm& form, const Stream& stream) const = 0;
  /// Returns the FLOPs that backward adds if `share` of a batch's activations is recomputed (see
  /// Recomputation). Excludes activation functions and norms, which are bound by bandwidth.
  virtual double recomputed_flops(const Batch& /*batch*/, double /*share*/) { return 0; }
  /// Returns the batch's measures in an evaluation pass. Blocks. By default none.
  virtual std::vector<Measure> wait_for_measures(const Batch& /*batch*/, const Pass& /*pass*/,
                                                 const Stream& /*stream*/) {
    return {};
  }
  /// Returns the predictions in an evaluation pass, f32 on the host, by loss name. Blocks.
  virtual std::vector<NamedTensor> wait_for_predictions(const Batch& /*batch*/,
                                                        const Pass& /*pass*/,
                                                        const Stream& /*stream*/) {
    return {};
  }
  /// Configures parts. Throws ConfigError if a pattern matches no part, or two match the same part.
  /// The default throws if `settings` is not empty.
  virtual void set_parts(const std::vector<PartSettings>& settings) {
    for (const PartSettings& part : settings)
      throw ConfigError(
          {"parts: got " + part.pattern +
           " with recompute or precision, but this model does not support them per part; want "
           "memory.recompute and mixed_precision, which apply to the whole model"});
  }
};

}  // namespace hybrid_trainer
