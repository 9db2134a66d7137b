#include "src/trainer/sharding/weight_parts.h"

#include <numeric>

#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/make_optimizer.h"

namespace hybrid_trainer {

namespace {

/// Returns the multiple of `unit`, or the end, that is nearest to `element`.
std::int64_t nearest_cut(std::int64_t element, std::int64_t unit, std::int64_t elements) {
  const std::int64_t below = element / unit * unit, above = std::min(elements, below + unit);
  return element - below < above - element ? below : above;
}

class GroupCutter {
 public:
  GroupCutter(const WeightGroup& group, const std::vector<Parameter*>& weights,
              const std::vector<std::int64_t>& units)
      : weights_(weights), units_(units), last_(group.last), weight_(group.first) {}
  /// Returns a cut near `wanted` elements from the start. `wanted` must not precede the last cut.
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
  std::int64_t position() const { return position_; }  // position of the last cut

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

/// Splits the group. `parts`: each rank's elements before the group; returns those after it.
std::vector<std::int64_t> cut_group(WeightGroup& group, const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units,
                                    std::vector<std::int64_t> parts) {
  const std::int64_t elements = elements_of(group, weights);
  const std::int64_t all = std::accumulate(parts.begin(), parts.end(), elements);
  const auto ranks = static_cast<std::int64_t>(parts.size());
  GroupCutter cutter(group, weights, units);
  group.cuts = {{group.first, 0}};
  std::int64_t preceding_elements = 0, last = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t& part = parts[static_cast<std::size_t>(rank)];
    preceding_elements += part;
    std::int64_t position = elements;
    if (rank + 1 < ranks) {
      const std::int64_t wanted = all * (rank + 1) / ranks - preceding_elements;
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

/// Returns whether the longest new part exceeds the mean by at most a quarter, up to cut rounding.
bool are_about_equal(const std::vector<std::int64_t>& before,
                     const std::vector<std::int64_t>& after) {
  std::int64_t longest = 0, sum = 0;
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    longest = std::max(longest, after[rank] - before[rank]);
    sum += after[rank] - before[rank];
  }
  return 4 * (longest - kernels::kDotChunk) * static_cast<std::int64_t>(before.size()) <= 5 * sum;
}

Tensor cut(const Tensor& whole, const Shard& part, const Shape& shape) {
  return whole.view({whole.elements()}).rows(part.first, part.last).view(shape);
}

/// This rank's part of a replicated weight, in the memory that receives other ranks' changes.
class PartInPlace final : public WeightStorage {
 public:
  PartInPlace(WeightArrivals& arrivals, std::size_t weight, const Shard& part, const Shape& shape)
      : arrivals_(arrivals), weight_(weight), part_(part), shape_(shape) {}
  Tensor acquire(DType dtype, const Stream& stream) override {
    return cut(arrivals_.own_storage(weight_).acquire(dtype, stream), part_, shape_);
  }
  void release(DType dtype, Use use, const Stream& stream) noexcept override {
    arrivals_.storage(weight_).release(dtype, use, stream);
  }
  Tensor master_in_place() const override {
    return cut(arrivals_.own_storage(weight_).master_in_place(), part_, shape_);
  }
  void compute_in(DType, const Stream&) override {}  // the whole weight does
  DType compute_dtype() const override { return arrivals_.storage(weight_).compute_dtype(); }
  void refresh_compute_copy(const Stream&) override {}

 private:
  WeightArrivals& arrivals_;
  std::size_t weight_;
  Shard part_;
  Shape shape_;
};

/// A sharded weight; `mine` is this rank's shard. Acquiring it is collective and gathers all shards
/// until its release. Changes to the gathered values are lost. It has no master_in_place.
class GatheredWeight final : public WeightStorage {
 public:
  GatheredWeight(const Shape& shape, Parameter& mine, std::vector<Shard> parts,
                 WeightGathers& gathers)
      : mine_(mine), gathers_(gathers), number_(gathers.add(shape, mine, std::move(parts))) {}
  Tensor acquire(DType dtype, const Stream& stream) override {
    return gathered_of(dtype).acquire([&] { return gathers_.take(number_, dtype, stream); });
  }
  void release(DType dtype, Use, const Stream&) noexcept override { gathered_of(dtype).release(); }
  Tensor master_in_place() const override { return {}; }
  void compute_in(DType dtype, const Stream& stream) override {
    gathers_.end_pass(stream);
    mine_.compute_in(dtype, stream);
  }
  DType compute_dtype() const override { return mine_.compute_dtype(); }
  void refresh_compute_copy(const Stream& stream) override {
    gathers_.end_pass(stream);
    mine_.refresh_compute_copy(stream);
  }
  void offload_master(const Stream& home, const Stream& stream) override {
    mine_.offload_master(home, stream);
  }
  void restore_master() override { mine_.restore_master(); }

 private:
  HeldValues& gathered_of(DType dtype) { return gathered_[dtype == DType::kF32 ? 0 : 1]; }

  Parameter& mine_;
  WeightGathers& gathers_;
  std::size_t number_;
  std::array<HeldValues, 2> gathered_;  // in f32, and the compute copy
};

/// Copies master weights and compute copy of a part of a weight into separate memory.
std::unique_ptr<WeightStorage> make_part_storage(Parameter& whole, const Shard& part,
                                                 const Shape& shape, const Stream& stream) {
  const MemoryLabel label(whole.name());
  const Tensor master = Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream);
  if (part.elements() > 0) copy_or_wait(master, cut(whole.master_in_place(), part, shape), stream);
  return std::make_unique<ResidentWeight>(master);
}

/// Returns the shape of a part. A whole weight keeps its shape, because updates need it. An empty
/// part keeps the number of dimensions. Other parts are vectors.
Shape shape_of_part(const Parameter& weight, const Shard& part) {
  if (part.elements() == weight.elements()) return weight.shape();
  Shape shape{part.elements()};
  for (int i = 1; i < weight.shape().rank() && part.elements() == 0; ++i) shape.append(0);
  return shape;
}

}  // namespace

std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes) {
  const std::int64_t enough = bytes / static_cast<std::int64_t>(size_of(DType::kF32));
  std::vector<WeightGroup> groups;
  std::int64_t elements = enough;  // elements of the current group
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
  std::optional<std::size_t> last;  // end of a pending group with unequal parts
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

WeightParts::WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
                         Communicator& ranks, const WeightSharing& sharing, const Stream& stream)
    : weights_(weights),
      ranks_(ranks),
      shards_(sharing.shards),
      groups_(cut_groups(group_weights(weights, sharing.bucket_bytes), weights,
                         cut_units(optimizer, weights), ranks.size())),
      group_of_(weights.size()),
      gathers_(ranks, sharing.bytes_ahead) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t i = groups_[g].first; i < groups_[g].last; ++i) group_of_[i] = g;
  }
  if (!shards_) arrivals_.emplace(*this, sharing.bucket_bytes, sharing.background, stream);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    Parameter& weight = *weights_[i];
    const Shard part = mine(i);
    const Shape shape = shape_of_part(weight, part);
    std::unique_ptr<WeightStorage> storage;
    if (shards_) {
      storage = make_part_storage(weight, part, shape, stream);
    } else {
      storage = std::make_unique<PartInPlace>(*arrivals_, i, part, shape);
    }
    own_.push_back(
        std::make_unique<Parameter>(weight.name(), shape, weight.role(), std::move(storage)));
    own_.back()->set_part(part.first, weight.elements());
    const std::int64_t block = weight.elements() / weight.blocks();
    if (part.elements() > 0 && part.elements() % block == 0)
      own_.back()->set_blocks(part.elements() / block);
    parameters_.push_back(own_.back().get());
    if (!shards_) continue;
    std::vector<Shard> parts;
    for (int rank = 0; rank < ranks_.size(); ++rank) parts.push_back(of(i, rank));
    weight.set_storage(
        std::make_unique<GatheredWeight>(weight.shape(), *own_.back(), std::move(parts), gathers_));
  }
}

Shard WeightParts::of(std::size_t weight, int rank) const {
  const std::vector<WeightCut>& cuts = groups_[group_of(weight)].cuts;
  const auto position = [&](const WeightCut& cut) {
    if (cut.weight == weight) return cut.element;
    return cut.weight < weight ? std::int64_t{0} : weights_[weight]->elements();
  };
  const auto i = static_cast<std::size_t>(rank);
  return {position(cuts[i]), position(cuts[i + 1])};
}

void WeightParts::masters_changed(const Stream& stream) {
  if (!shards_) return arrivals_->masters_changed();
  for (Parameter* weight : weights_) weight->refresh_compute_copy(stream);
}

void WeightParts::send_changes() {
  if (arrivals_) arrivals_->send();
}

static void append_chunk_dots(std::vector<double>& sums, const Tensor& x, const Tensor& y,
                              const Stream& stream) {
  if (x.elements() == 0) return;
  const StagedTensor left(x, Use::kRead, stream), right(y, Use::kRead, stream);
  const Tensor own = Tensor::empty({kernels::dot_chunks(x.elements())}, DType::kF64,
                                   MemoryKind::kWorkspace, stream);
  kernels::chunk_dots(own, left, right, stream);
  const Tensor here = wait_for_host(own, stream);
  sums.insert(sums.end(), here.data<double>(), here.data<double>() + here.elements());
}

std::vector<std::vector<double>> WeightParts::wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                                  const std::vector<Tensor>& y,
                                                                  const Stream& stream) const {
  std::vector<double> sums;
  for (std::size_t i = 0; i < x.size(); ++i) append_chunk_dots(sums, x[i], y[i], stream);
  if (stream.device().simulated) return {};
  const auto all = gather_numbers<double>(sums, ranks_);
  std::vector<std::size_t> at(all.size());
  std::vector<std::vector<double>> by_weight(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      // Parts begin at whole chunks.
      const auto chunks =
          static_cast<std::size_t>(kernels::dot_chunks(of(i, static_cast<int>(rank)).elements()));
      require(at[rank] + chunks <= all[rank].size(), "ranks must add up the same weights");
      const double* const first = all[rank].data() + at[rank];
      by_weight[i].insert(by_weight[i].end(), first, first + chunks);
      at[rank] += chunks;
    }
  }
  return by_weight;
}

double WeightParts::wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const {
  std::vector<double> sums;
  append_chunk_dots(sums, x, y, stream);
  double total = 0;
  for (const std::vector<double>& theirs : gather_numbers<double>(sums, ranks_))
    total = std::accumulate(theirs.begin(), theirs.end(), total);
  return total;
}

}  // namespace hybrid_trainer
