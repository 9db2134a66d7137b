#include "src/trainer/sharding/semiseparable_parts.h"

namespace hybrid_trainer {

namespace {

/// Returns shards of V's columns, with sizes in reverse order to balance the sizes of U's.
std::vector<Shard> mirrored_shards(const std::vector<Shard>& shards) {
  std::vector<Shard> mirrored;
  std::int64_t first = 0;
  for (std::size_t r = shards.size(); r-- > 0;) {
    mirrored.push_back({first, first + shards[r].elements()});
    first = mirrored.back().last;
  }
  return mirrored;
}

/// Returns shards of a factor's rows, of sizes that differ by at most one.
std::vector<Shard> even_shards(std::int64_t rank, int ranks) {
  if (rank < ranks)
    throw Error(ExitCode::kConfig, concat("U and V have ", rank, " columns for ", ranks,
                                          " ranks; want at least one column for each: increase the "
                                          "matrix rank, or use fewer ranks"));
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r)
    shards.push_back({rank * r / ranks, rank * (r + 1) / ranks});
  return shards;
}

Tensor own_rows(const Tensor& factor, const Shard& rows, const Stream& stream) {
  const Tensor from = factor.rows(rows.first, rows.last);
  const Tensor own = Tensor::empty_like(from, MemoryKind::kParameters, stream);
  copy(own, from, stream);
  return own;
}

}  // namespace

SemiseparableParts::SemiseparableParts(const kernels::Semiseparable& whole, Communicator& ranks,
                                       const Stream& stream)
    : ranks_(ranks),
      own_(whole),
      shards_u_(even_shards(whole.rank(), ranks.size())),
      shards_v_(mirrored_shards(shards_u_)) {
  own_.u = own_rows(whole.u, columns_of_u(), stream);
  own_.v = own_rows(whole.v, columns_of_v(), stream);
}

std::size_t SemiseparableParts::bytes() const {
  std::size_t bytes = 0;
  for (const Tensor* part :
       {&own_.diagonal, &own_.above, &own_.below, &own_.u, &own_.v, &own_.u_scales, &own_.v_scales})
    bytes += part->defined() ? part->bytes() : 0;
  return bytes;
}

Tensor SemiseparableParts::gathered_factor(const Tensor& own, const std::vector<Shard>& shards,
                                           const Stream& stream) const {
  const std::int64_t size = own_.size();
  const Shard& mine = shards[static_cast<std::size_t>(ranks_.rank())];
  const Tensor all =
      Tensor::empty({shards.back().last, size}, own.dtype(), MemoryKind::kWorkspace, stream);
  copy(all.rows(mine.first, mine.last), own, stream);
  std::vector<std::int64_t> counts;
  for (const Shard& shard : shards) counts.push_back(shard.elements() * size);
  ranks_.gather_parts(all.view({all.elements()}), counts, stream);
  return all;
}

kernels::Semiseparable SemiseparableParts::gathered(const Stream& stream) const {
  kernels::Semiseparable whole = own_;
  whole.u = gathered_factor(own_.u, shards_u_, stream);
  whole.v = gathered_factor(own_.v, shards_v_, stream);
  return whole;
}

void SemiseparableParts::forward(const Tensor& y, const Tensor& x, kernels::Transpose transpose,
                                 const Stream& stream) const {
  kernels::semiseparable_forward(y, x, gathered(stream), transpose, stream);
}

void SemiseparableParts::backward(const kernels::SemiseparableGradients& gradients,
                                  const Tensor& dy, const Tensor& x, const Stream& stream) const {
  const kernels::Semiseparable whole = gathered(stream);
  kernels::SemiseparableGradients all = gradients;
  const auto place = [&](const Tensor& own, const Shard& rows) -> Tensor {
    if (!own) return {};
    const Tensor wide = Tensor::zeros(whole.u.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    copy(wide.rows(rows.first, rows.last), own, stream);  // gradients may be added to it
    return wide;
  };
  all.u = place(gradients.u, columns_of_u());
  all.v = place(gradients.v, columns_of_v());
  kernels::semiseparable_backward(all, dy, x, whole, stream);
  const auto take = [&](const Tensor& own, const Tensor& wide, const Shard& rows) {
    if (own) copy(own, wide.rows(rows.first, rows.last), stream);
  };
  take(gradients.u, all.u, columns_of_u());
  take(gradients.v, all.v, columns_of_v());
}

}  // namespace hybrid_trainer
