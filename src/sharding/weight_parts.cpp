#include "src/sharding/weight_parts.h"

#include <cstring>

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "src/sharding/part_storage.h"

namespace hybrid_trainer {
namespace {

/// A whole weight keeps its shape, since that matters to what updates it; of none there is nothing
/// in as many dimensions.
Shape shape_of_part(const Parameter& weight, const Shard& part) {
  if (part.elements() == weight.elements()) return weight.shape();
  Shape shape{part.elements()};
  for (int i = 1; i < weight.shape().rank() && part.elements() == 0; ++i) shape.append(0);
  return shape;
}

}  // namespace

WeightParts::WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
                         Communicator& ranks, const WeightSharing& sharing, const Stream& stream)
    : weights_(weights),
      ranks_(ranks),
      apart_(sharing.apart),
      groups_(cut_groups(group_weights(weights, sharing.bucket_bytes), weights,
                         cut_units(optimizer, weights), ranks.size())),
      group_of_(weights.size()),
      gathers_(ranks, sharing.bytes_ahead) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t i = groups_[g].first; i < groups_[g].last; ++i) group_of_[i] = g;
  }
  if (!apart_) arrivals_.emplace(*this, sharing.bucket_bytes, sharing.beside, stream);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    Parameter& weight = *weights_[i];
    const Shard part = mine(i);
    const Shape shape = shape_of_part(weight, part);
    own_.push_back(std::make_unique<Parameter>(weight.name(), shape, weight.role(),
                                               apart_ ? part_of_its_own(weight, part, shape, stream)
                                                      : part_in_place(*arrivals_, i, part, shape)));
    own_.back()->be_part(part.first, weight.elements());
    const std::int64_t block = weight.elements() / weight.blocks();
    if (part.elements() > 0 && part.elements() % block == 0)
      own_.back()->set_blocks(part.elements() / block);
    parameters_.push_back(own_.back().get());
    if (!apart_) continue;
    std::vector<Shard> parts;
    for (int rank = 0; rank < ranks_.size(); ++rank) parts.push_back(of(i, rank));
    weight.set_storage(gathered_weight(weight.shape(), *own_.back(), std::move(parts), gathers_));
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
  if (!apart_) return arrivals_->masters_changed();
  for (Parameter* weight : weights_) weight->refresh_compute_copy(stream);
}

void WeightParts::send_changes() {
  if (arrivals_) arrivals_->send();
}

/// Adds the sums of all chunks to `sums`, as bytes.
static void append_chunk_dots(std::string& sums, const Tensor& x, const Tensor& y,
                              const Stream& stream) {
  if (x.elements() == 0) return;
  const StagedTensor left(x, Use::kRead, stream), right(y, Use::kRead, stream);
  const Tensor own = Tensor::empty({kernels::dot_chunks(x.elements())}, DType::kF64,
                                   MemoryKind::kWorkspace, stream);
  kernels::chunk_dots(own, left, right, stream);
  const Tensor here = wait_for_host(own, stream);
  sums.append(static_cast<const char*>(here.raw()), here.bytes());
}

std::vector<std::vector<double>> WeightParts::wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                                  const std::vector<Tensor>& y,
                                                                  const Stream& stream) const {
  std::string sums;
  for (std::size_t i = 0; i < x.size(); ++i) append_chunk_dots(sums, x[i], y[i], stream);
  if (stream.device().simulated) return {};
  const std::vector<std::string> all = ranks_.host_gather(sums);
  std::vector<std::size_t> at(all.size());
  std::vector<std::vector<double>> by_weight(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      // Parts begin at whole chunks.
      const std::int64_t chunks = kernels::dot_chunks(of(i, static_cast<int>(rank)).elements());
      const std::size_t bytes = static_cast<std::size_t>(chunks) * sizeof(double);
      if (chunks == 0) continue;
      require(at[rank] + bytes <= all[rank].size(), "ranks add up the same weights");
      std::vector<double>& chunk_sums = by_weight[i];
      chunk_sums.resize(chunk_sums.size() + static_cast<std::size_t>(chunks));
      std::memcpy(chunk_sums.data() + chunk_sums.size() - chunks, all[rank].data() + at[rank],
                  bytes);
      at[rank] += bytes;
    }
  }
  return by_weight;
}

double WeightParts::wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const {
  std::string sums;
  append_chunk_dots(sums, x, y, stream);
  double total = 0;
  for (const std::string& theirs : ranks_.host_gather(sums)) {
    for (std::size_t at = 0; at < theirs.size(); at += sizeof(double)) {
      double sum = 0;
      std::memcpy(&sum, theirs.data() + at, sizeof sum);
      total += sum;
    }
  }
  return total;
}

}  // namespace hybrid_trainer
