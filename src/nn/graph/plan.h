#pragma once

#include <cstddef>
#include <functional>

#include "hybrid_trainer/nn/module_graph.h"

namespace hybrid_trainer::graph {

/// Which parts of a network backward computes again. Parts of one group go without so much that a
/// share of what all of them would save is saved, from the first part on.
class PartShares {
 public:
  /// One more entry. `kept`: numbers that it keeps for backward; `least`: if it is computed again;
  /// `divides`: it can be computed again in part. Zeros for what is no part.
  void add(double kept, double least, bool divides) { parts_.push_back({kept, least, divides}); }
  /// So much of these parts, which are a group from now on.
  void set_group(const std::vector<std::size_t>& parts, double share) {
    for (const std::size_t part : parts) parts_[part].group = groups_.size();
    groups_.push_back(share);
  }
  /// All parts are of the run's group again.
  void clear() {
    groups_.resize(1);
    for (Sizes& part : parts_) part.group = 0;
  }
  /// By entry; `share`: of parts without a group.
  std::vector<double> of_parts(double share) const;

 private:
  struct Sizes {
    double kept, least;
    bool divides;
    std::size_t group = 0;
    double saved() const { return kept > least ? kept - least : 0; }
  };
  std::vector<Sizes> parts_;
  std::vector<double> groups_{0};  // their shares; the first is the run's
};

/// One entry of a network's list, made: exactly one of tensor, part and loss is there.
struct Entry {
  ModuleName name;
  std::vector<std::size_t> reads{};
  std::optional<BatchTensor> tensor{};
  std::unique_ptr<Part> part{};
  std::unique_ptr<Loss> loss{};
  double weight = 1;             // of a loss
  Shape shape{};                 // of what it gives, for one example
  std::size_t readers = 0;       // how often others read that
  std::optional<DType> dtype{};  // of a part that has one of its own
};

/// A network's list, made: what it consists of, and what each part costs.
class Plan {
 public:
  /// See ModuleGraph.
  Plan(std::vector<Node> nodes, std::uint64_t seed, const Stream& stream);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Throws ConfigError, with the nearest name, where there is no such part.
  std::size_t part_of(const std::string& name) const;
  /// By entry: whether a gradient of what it gives is of use, as something before it is trained.
  std::vector<bool> trained() const;
  /// By entry: whether it is `last` or leads there.
  std::vector<bool> leading_to(std::size_t last) const;
  /// By entry, the share that backward computes again; `share`: of parts that have none of their own.
  std::vector<double> recomputed(double share) const { return shares_.of_parts(share); }
  void set_parts(const std::vector<PartSettings>& settings);
  /// The shapes that an entry reads, for one example.
  std::vector<Shape> read_shapes(const Entry& entry) const;
  /// Of forward and backward of one example.
  double flops() const;
  double recomputed_flops(double share) const;

 private:
  void add(Node node, std::uint64_t seed, const Stream& stream);
  void add_part(Entry entry, const Node& node, std::uint64_t seed, const Stream& stream);
  void add_loss(Entry entry, const Node& node);
  void refuse_unread() const;
  std::vector<std::string> names_of_parts() const;
  std::vector<Entry> entries_;
  PartShares shares_;
};

/// The name and shape of an entry, for messages: "video.cnn (1, 4, 8)".
std::string described(const Entry& entry);

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
  void release(const Entry& entry) {
    for (const std::size_t read : entry.reads)
      if (--readers_[read] == 0) results_[read] = {};
  }
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
