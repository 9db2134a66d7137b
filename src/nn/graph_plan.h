#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/graph_node.h"
#include "src/nn/part_shares.h"

namespace hybrid_trainer::graph {

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
  double kept_numbers(double share) const;

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

}  // namespace hybrid_trainer::graph
