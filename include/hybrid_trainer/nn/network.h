#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/part_settings.h"

namespace hybrid_trainer {

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
