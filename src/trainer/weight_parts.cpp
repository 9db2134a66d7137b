#include "src/trainer/weight_parts.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "src/trainer/part_storage.h"

namespace hybrid_trainer {
namespace {

/// The multiple of `unit`, or the end, that lies nearest to `element`.
std::int64_t nearest_cut(std::int64_t element, std::int64_t unit, std::int64_t elements) {
  const std::int64_t below = element / unit * unit, above = std::min(elements, below + unit);
  return element - below < above - element ? below : above;
}

/// A whole weight keeps its shape, since that matters to what updates it; of none there is nothing
/// in as many dimensions.
Shape shape_of_part(const Parameter& weight, const Shard& part) {
  if (part.elements() == weight.elements()) return weight.shape();
  Shape shape{part.elements()};
  for (int i = 1; i < weight.shape().rank() && part.elements() == 0; ++i) shape.append(0);
  return shape;
}

}  // namespace

std::vector<WeightCut> cut_weights(const std::vector<Parameter*>& weights,
                                   const std::vector<std::int64_t>& units, int ranks) {
  std::int64_t all = 0;
  for (const Parameter* weight : weights) all += weight->elements();
  std::vector<WeightCut> cuts;
  std::size_t weight = 0;
  std::int64_t before = 0;  // elements of earlier weights
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t wanted = all * rank / ranks;
    while (weight < weights.size() && before + weights[weight]->elements() <= wanted)
      before += weights[weight++]->elements();
    if (weight == weights.size()) {
      cuts.push_back({weight, 0});
      continue;
    }
    const std::int64_t elements = weights[weight]->elements();
    const std::int64_t element = nearest_cut(wanted - before, units[weight], elements);
    cuts.push_back(element == elements ? WeightCut{weight + 1, 0} : WeightCut{weight, element});
  }
  cuts.push_back({weights.size(), 0});
  return cuts;
}

WeightParts::WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
                         Communicator& ranks, bool apart, std::size_t bytes_ahead,
                         const Stream& stream)
    : weights_(weights),
      ranks_(ranks),
      apart_(apart),
      cuts_(cut_weights(weights, cut_units(optimizer, weights), ranks.size())),
      gathers_(ranks, bytes_ahead) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    Parameter& weight = *weights_[i];
    const Shard part = mine(i);
    const Shape shape = shape_of_part(weight, part);
    own_.push_back(std::make_unique<Parameter>(
        weight.name(), shape, weight.role(),
        apart ? part_of_its_own(weight, part, shape, stream) : part_in_place(weight, part, shape)));
    own_.back()->be_part(part.first, weight.elements());
    const std::int64_t block = weight.elements() / weight.blocks();
    if (part.elements() > 0 && part.elements() % block == 0)
      own_.back()->set_blocks(part.elements() / block);
    parameters_.push_back(own_.back().get());
    if (!apart) continue;
    std::vector<Shard> parts;
    for (int rank = 0; rank < ranks_.size(); ++rank) parts.push_back(of(i, rank));
    weight.set_storage(gathered_weight(weight.shape(), *own_.back(), std::move(parts), gathers_));
  }
}

Shard WeightParts::of(std::size_t weight, int rank) const {
  const auto position = [&](const WeightCut& cut) {
    if (cut.weight == weight) return cut.element;
    return cut.weight < weight ? std::int64_t{0} : weights_[weight]->elements();
  };
  const auto i = static_cast<std::size_t>(rank);
  return {position(cuts_[i]), position(cuts_[i + 1])};
}

std::int64_t WeightParts::elements_of(int rank) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) sum += of(i, rank).elements();
  return sum;
}

/// copy(weight, elements of it, elements of [0, last − first)) for each piece of elements
/// [first, last) of a rank's own.
template <class Copy>
void WeightParts::visit_pieces(int rank, std::int64_t first, std::int64_t last,
                               const Copy& copy) const {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < weights_.size() && before < last; ++i) {
    const Shard part = of(i, rank);
    const std::int64_t begin = std::max(first, before),
                       end = std::min(last, before + part.elements());
    if (begin < end) {
      const std::int64_t offset = part.first - before;
      copy(i, Shard{begin + offset, end + offset}, Shard{begin - first, end - first});
    }
    before += part.elements();
  }
}

void WeightParts::gather_masters(std::int64_t bucket_bytes, const Stream& stream) {
  if (apart_ || ranks_.size() == 1) return;
  std::int64_t longest = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) longest = std::max(longest, elements_of(rank));
  const auto each = static_cast<std::int64_t>(size_of(DType::kF32));
  const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes / each / ranks_.size());
  for (std::int64_t first = 0; first < longest; first += most) {
    const std::int64_t count = std::min(most, longest - first);
    const Tensor all =
        Tensor::empty({ranks_.size() * count}, DType::kF32, MemoryKind::kWorkspace, stream);
    const auto part = [&](int rank) { return all.rows(rank * count, (rank + 1) * count); };
    const auto flat_master = [&](std::size_t i) {
      return weights_[i]->home_master().view({weights_[i]->elements()});
    };
    const Tensor mine = part(ranks_.rank());
    fill_zero(mine, stream);  // where others have more
    visit_pieces(ranks_.rank(), first, first + count,
                 [&](std::size_t i, const Shard& from, const Shard& to) {
                   copy_or_wait(mine.rows(to.first, to.last),
                                flat_master(i).rows(from.first, from.last), stream);
                 });
    ranks_.all_gather(all, mine, stream);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      visit_pieces(rank, first, first + count,
                   [&](std::size_t i, const Shard& to, const Shard& from) {
                     copy_or_wait(flat_master(i).rows(to.first, to.last),
                                  part(rank).rows(from.first, from.last), stream);
                   });
    }
  }
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
