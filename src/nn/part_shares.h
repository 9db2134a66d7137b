#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace hybrid_trainer::graph {

/// Which parts of a network backward computes again. Parts of one group go without so much that a
/// share of what all of them would save is saved, from the first part on.
class PartShares {
 public:
  /// One more entry. `kept`: numbers that it keeps for backward; `least`: if it is computed again;
  /// `divides`: it can be computed again in part. Zeros for what is no part.
  void add(double kept, double least, bool divides) { parts_.push_back({kept, least, divides}); }
  /// So much of these parts, which are a group from now on.
  void set_group(const std::vector<std::size_t>& parts, double share);
  /// All parts are of the run's group again.
  void clear();
  /// By entry; `share`: of parts without a group.
  std::vector<double> of_parts(double share) const;
  double kept_numbers(double share) const;

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

}  // namespace hybrid_trainer::graph
