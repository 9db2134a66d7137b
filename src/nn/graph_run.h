#pragma once

#include <functional>
#include <vector>

#include "src/nn/graph_plan.h"

namespace hybrid_trainer::graph {

/// What passes over a batch have in common.
class Run {
 protected:
  Run(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream);
  /// The tape's pass is again what it was.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// How an entry computes.
  DType dtype_of(std::size_t entry) const {
    return plan_.entries()[entry].dtype.value_or(pass_.dtype);
  }
  Pass pass_of(std::size_t entry) const;
  /// Whether backward goes through the part.
  bool goes_back(std::size_t entry) const { return tape_.keeps() && trained_[entry]; }
  /// Whether only what the part reads is kept of it.
  bool is_checkpointed(std::size_t entry) const {
    return shares_[entry] > 0 && !plan_.entries()[entry].part->recomputes_itself();
  }
  /// x in the dtype, which tokens do not have.
  Tensor in(DType dtype, const Tensor& x) const;
  /// The batch's tensors that an entry reads, and which gradients are of use.
  std::vector<PartInput> inputs_of_batch(std::size_t entry) const;

  const Plan& plan_;
  const Batch& batch_;
  ActivationTape& tape_;
  const Stream& stream_;
  const Pass pass_;
  const std::vector<bool> trained_;
  const std::vector<double> shares_;
};

/// Goes forward through the list.
class ForwardRun final : private Run {
 public:
  ForwardRun(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream)
      : Run(plan, batch, tape, stream), results_(plan.entries().size()) {}
  /// The sum of the losses times their weights, (1) f64.
  Tensor loss(float gradient_scale);
  /// What a part makes.
  Tensor result(std::size_t part);
  /// Calls visit(entry, its predictions in f32, the losses of its rows) for each loss.
  using LossVisitor = std::function<void(const Entry&, const Tensor&, const Tensor&)>;
  void visit_losses(const LossVisitor& visit);

 private:
  void read_tensor(std::size_t entry);
  void compute_part(std::size_t entry);
  /// Writes the losses of a loss's rows and returns what it held against the targets, f32.
  Tensor compute_loss(std::size_t entry, const Tensor& losses, float gradient_scale);
  void release(const Entry& entry);
  std::vector<Tensor> results_;         // of entries that are still read
  std::vector<std::size_t> readers_{};  // that come yet, by entry
};

/// Goes backward through it.
class BackwardRun final : private Run {
 public:
  BackwardRun(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream)
      : Run(plan, batch, tape, stream), gradients_(plan.entries().size()) {}
  void run();

 private:
  std::vector<Tensor> part_gradients(std::size_t entry, const Tensor& dy);
  /// `gradient` is one of what the entry gave; its memory holds the sum if it is the first.
  void add(std::size_t entry, const Tensor& gradient);
  std::vector<Tensor> gradients_;
};

/// The tensors of the batch that a loss reads. Throws Error or ShapeMismatch where they are not so.
std::vector<Tensor> targets_of(const Entry& loss, const Batch& batch);

}  // namespace hybrid_trainer::graph
