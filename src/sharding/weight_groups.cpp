#include "src/sharding/weight_groups.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {
namespace {

/// The multiple of `unit`, or the end, that lies nearest to `element`.
std::int64_t nearest_cut(std::int64_t element, std::int64_t unit, std::int64_t elements) {
  const std::int64_t below = element / unit * unit, above = std::min(elements, below + unit);
  return element - below < above - element ? below : above;
}

/// Goes through a group from cut to cut.
class GroupCutter {
 public:
  GroupCutter(const WeightGroup& group, const std::vector<Parameter*>& weights,
              const std::vector<std::int64_t>& units)
      : weights_(weights), units_(units), last_(group.last), weight_(group.first) {}
  /// As near as it can be to `wanted` elements from the group's beginning, which must not be before
  /// the last cut.
  WeightCut cut_near(std::int64_t wanted) {
    while (weight_ < last_ && before_ + weights_[weight_]->elements() <= wanted)
      before_ += weights_[weight_++]->elements();
    position_ = before_;
    if (weight_ == last_) return {last_, 0};
    const std::int64_t elements = weights_[weight_]->elements();
    const std::int64_t element = nearest_cut(wanted - before_, units_[weight_], elements);
    position_ += element;
    return element == elements ? WeightCut{weight_ + 1, 0} : WeightCut{weight_, element};
  }
  std::int64_t position() const { return position_; }  // of the last cut

 private:
  const std::vector<Parameter*>& weights_;
  const std::vector<std::int64_t>& units_;
  std::size_t last_, weight_;
  std::int64_t before_ = 0;  // elements of the group's earlier weights
  std::int64_t position_ = 0;
};

std::int64_t elements_of(const WeightGroup& group, const std::vector<Parameter*>& weights) {
  std::int64_t sum = 0;
  for (std::size_t i = group.first; i < group.last; ++i) sum += weights[i]->elements();
  return sum;
}

/// Returns the elements of each rank with those of the group, which had `parts` before.
std::vector<std::int64_t> cut_group(WeightGroup& group, const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units,
                                    std::vector<std::int64_t> parts) {
  const std::int64_t elements = elements_of(group, weights);
  const std::int64_t all = std::accumulate(parts.begin(), parts.end(), elements);
  const auto ranks = static_cast<std::int64_t>(parts.size());
  GroupCutter cutter(group, weights, units);
  group.cuts = {{group.first, 0}};
  std::int64_t of_earlier_ranks = 0, last = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t& part = parts[static_cast<std::size_t>(rank)];
    of_earlier_ranks += part;
    std::int64_t position = elements;
    if (rank + 1 < ranks) {
      const std::int64_t wanted = all * (rank + 1) / ranks - of_earlier_ranks;
      group.cuts.push_back(cutter.cut_near(std::clamp(wanted, last, elements)));
      position = cutter.position();
    } else {
      group.cuts.push_back({group.last, 0});
    }
    part += position - last;
    last = position;
  }
  return parts;
}

/// Whether the longest part of what came between is at most a quarter longer than their mean, but
/// for the rounding of where weights may be cut.
bool are_about_equal(const std::vector<std::int64_t>& before,
                     const std::vector<std::int64_t>& after) {
  std::int64_t longest = 0, sum = 0;
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    longest = std::max(longest, after[rank] - before[rank]);
    sum += after[rank] - before[rank];
  }
  return 4 * (longest - kernels::kDotChunk) * static_cast<std::int64_t>(before.size()) <= 5 * sum;
}

}  // namespace

std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes) {
  const std::int64_t enough = bytes / static_cast<std::int64_t>(size_of(DType::kF32));
  std::vector<WeightGroup> groups;
  std::int64_t elements = enough;  // of the group that was begun last
  for (std::size_t i = weights.size(); i-- > 0;) {
    if (elements >= enough) {
      groups.push_back({i, i + 1});
      elements = 0;
    }
    groups.back().first = i;
    elements += weights[i]->elements();
  }
  return groups;
}

std::int64_t bucket_bytes_for(const std::vector<Parameter*>& weights,
                              const DistributedConfig& config) {
  const std::int64_t elements = elements_of({0, weights.size()}, weights);
  return config.bucket_bytes_for(elements * static_cast<std::int64_t>(size_of(DType::kF32)));
}

std::vector<WeightGroup> cut_groups(const std::vector<WeightGroup>& groups,
                                    const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units, int ranks) {
  std::vector<WeightGroup> cut;
  std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks));  // elements so far, by rank
  std::optional<std::size_t> last;  // weight of a group that is not about equal by itself
  for (const WeightGroup& group : groups) {
    WeightGroup whole{group.first, last.value_or(group.last)};
    std::vector<std::int64_t> with_this = cut_group(whole, weights, units, parts);
    last = whole.last;
    if (!are_about_equal(parts, with_this) && &group != &groups.back()) continue;
    parts = std::move(with_this);
    cut.push_back(std::move(whole));
    last.reset();
  }
  return cut;
}

}  // namespace hybrid_trainer
