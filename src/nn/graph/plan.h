#pragma once

#include <cstddef>
#include <functional>

#include "hybrid_trainer/nn/module_graph.h"

namespace hybrid_trainer::graph {

/// Distributes recomputation over the parts of a network. Each group recomputes its first parts
/// until they save the group's share of all that recomputation could save.
class PartShares {
 public:
  /// Adds an entry. `kept`: number of elements that it saves for backward; `least`: this number if
  /// the entry is recomputed; `divides`: whether the entry can be recomputed partially. Both counts
  /// are 0 except for parts.
  void add(double kept, double least, bool divides) { parts_.push_back({kept, least, divides}); }
  void set_group(const std::vector<std::size_t>& parts, double share) {
    for (const std::size_t part : parts) parts_[part].group = groups_.size();
    groups_.push_back(share);
  }
  /// Removes all groups, so that the run's share applies to all parts.
  void clear() {
    groups_.resize(1);
    for (Sizes& part : parts_) part.group = 0;
  }
  /// Returns the recomputed share of each entry. `share` applies to parts without a group.
  std::vector<double> of_parts(double share) const;

 private:
  struct Sizes {
    double kept, least;
    bool divides;
    std::size_t group = 0;
    double saved() const { return kept > least ? kept - least : 0; }
  };
  std::vector<Sizes> parts_;
  std::vector<double> groups_{0};  // share of each group; index 0 is the run's share
};

/// One built entry of a network's list: exactly one of tensor, part and loss is set.
struct Entry {
  ModuleName name;
  std::vector<std::size_t> reads{};
  std::optional<BatchTensor> tensor{};
  std::unique_ptr<Part> part{};
  std::unique_ptr<Loss> loss{};
  double weight = 1;             // weight of a loss in the total
  Shape shape{};                 // shape of its result, for one example
  std::size_t readers = 0;       // number of reads of its result
  std::optional<DType> dtype{};  // dtype of a part that has a separate one
};

/// The modules built from a network's list of parts, with the cost of each.
class Plan {
 public:
  /// Builds the list and initializes weights; see ModuleGraph.
  Plan(std::vector<Node> nodes, std::uint64_t seed, const Stream& stream);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns the part's index. Throws ConfigError, suggesting the nearest name, if there is none.
  std::size_t part_of(const std::string& name) const;
  /// Returns for each entry whether its result's gradient is needed, to train the entry or an
  /// earlier one.
  std::vector<bool> trained() const;
  /// Returns for each entry whether it is `last` or `last` depends on the entry.
  std::vector<bool> leading_to(std::size_t last) const;
  /// See PartShares::of_parts.
  std::vector<double> recomputed(double share) const { return shares_.of_parts(share); }
  void set_parts(const std::vector<PartSettings>& settings);
  /// Returns the shapes that an entry reads, for one example.
  std::vector<Shape> read_shapes(const Entry& entry) const;
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

/// Returns the name and shape of an entry for messages, such as "video.cnn (1, 4, 8)".
std::string described(const Entry& entry);

/// Common base of passes over a batch.
class Run {
 protected:
  Run(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  DType dtype_of(std::size_t entry) const {
    return plan_.entries()[entry].dtype.value_or(pass_.dtype);
  }
  Pass pass_of(std::size_t entry) const;
  bool propagates(std::size_t entry) const { return tape_.keeps() && trained_[entry]; }
  /// Returns whether only the inputs of the part are saved.
  bool is_checkpointed(std::size_t entry) const {
    return shares_[entry] > 0 && !plan_.entries()[entry].part->recomputes_itself();
  }
  /// Returns x in this dtype; tokens do not change.
  Tensor in(DType dtype, const Tensor& x) const;
  /// Returns the batch's tensors that an entry reads, and whether their gradients are needed.
  std::vector<PartInput> inputs_of_batch(std::size_t entry) const;

  const Plan& plan_;
  const Batch& batch_;
  ActivationTape& tape_;
  const Stream& stream_;
  const Pass pass_;
  const std::vector<bool> trained_;
  const std::vector<double> shares_;
};

class ForwardRun final : private Run {
 public:
  ForwardRun(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream)
      : Run(plan, batch, tape, stream), results_(plan.entries().size()) {}
  /// Returns the weighted sum of the losses, (1) f64.
  Tensor loss(float gradient_scale);
  Tensor result(std::size_t part);
  /// Called for each loss with its entry, its predictions in f32, and the losses of its rows.
  using LossVisitor = std::function<void(const Entry&, const Tensor&, const Tensor&)>;
  void visit_losses(const LossVisitor& visit);

 private:
  void compute_part(std::size_t entry);
  /// Writes the losses of all rows of a loss entry, and returns its predictions in f32.
  Tensor compute_loss(std::size_t entry, const Tensor& losses, float gradient_scale);
  void release(const Entry& entry) {
    for (const std::size_t read : entry.reads)
      if (--readers_[read] == 0) results_[read] = {};
  }
  std::vector<Tensor> results_;         // results that are still needed
  std::vector<std::size_t> readers_{};  // remaining reads, by entry
};

class BackwardRun final : private Run {
 public:
  BackwardRun(const Plan& plan, const Batch& batch, ActivationTape& tape, const Stream& stream)
      : Run(plan, batch, tape, stream), gradients_(plan.entries().size()) {}
  void run();

 private:
  std::vector<Tensor> part_gradients(std::size_t entry, const Tensor& dy);
  /// Adds a gradient of the entry's result. May write the sum to the memory of the first gradient.
  void add(std::size_t entry, const Tensor& gradient);
  std::vector<Tensor> gradients_;
};

/// Returns the batch's tensors that a loss reads. Throws Error or ShapeMismatch.
std::vector<Tensor> targets_of(const Entry& loss, const Batch& batch);

}  // namespace hybrid_trainer::graph
