#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/graph_node.h"

namespace hybrid_trainer {
namespace graph {
class Plan;
}

/// A network of parts that is written as a list (graph::Node): forward runs in the list's order, and
/// backward in reverse. What several parts read gets the sum of their gradients, in a fixed order. Its
/// loss is the sum of its losses times their weights. The batch's tensors have the shapes that the list
/// says, for any number of examples.
class ModuleGraph final : public Network {
 public:
  /// Weights are drawn from `seed`. Throws ConfigError where the list names what it does not have, and
  /// ShapeMismatch, which names both parts, where shapes do not meet.
  ModuleGraph(std::vector<graph::Node> nodes, std::uint64_t seed, const Stream& stream);
  ~ModuleGraph() override;

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override;
  std::vector<std::string> parts() const override;
  /// A pattern is of parts' names: "video.*" is of "video" and "video.cnn". What a part computes in, its
  /// weights have from the next Parameter::compute_in on.
  void set_parts(const std::vector<PartSettings>& settings) override;
  /// "<loss>.loss", and what the loss measures.
  std::vector<Measure> wait_for_measures(const Batch& batch, const Pass& pass,
                                         const Stream& stream) override;
  double step_flops(const Batch& batch) override;
  /// What a step adds to that, where Pass::recompute is `share`.
  double recomputed_flops(const Batch& batch, double share) override;
  /// Numbers of an example that the tape keeps at that share; of a part's own dtype or the pass's.
  double kept_numbers(double share) const;

  /// What a part makes of a batch, in a pass that is not for training. Needs what leads to the part.
  Tensor result_of(const std::string& part, const Batch& batch, const Pass& pass,
                   const Stream& stream);
  /// What batches hold: tensors that parts read, then targets.
  std::vector<graph::BatchTensor> batch_tensors() const;
  Batch empty_batch(const BatchForm& form, const Stream& stream) const override {
    return empty_batch(form.examples, stream);
  }
  /// Of so many examples, uninitialised. `tokens_per_example`: see Batch.
  Batch empty_batch(std::int64_t size, const Stream& stream,
                    std::int64_t tokens_per_example = 1) const;

 private:
  std::unique_ptr<graph::Plan> plan_;
};

}  // namespace hybrid_trainer
