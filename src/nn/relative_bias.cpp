#include "hybrid_trainer/nn/relative_bias.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/recording.h"
#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer {
namespace {

RelativeBuckets checked(const RelativeBuckets& buckets, const std::string& name) {
  const std::int64_t least = buckets.two_way ? 4 : 2, exact = buckets.count / least;
  if (buckets.count < least)
    throw ConfigError({concat(name, ": buckets of distances: got ", buckets.count, ", want ", least,
                              " or more")});
  if (buckets.two_way && buckets.count % 2 != 0)
    throw ConfigError({concat(name, ": buckets of distances: got ", buckets.count,
                              ", want an even number, for keys on both sides of a query")});
  if (buckets.most <= exact)
    throw ConfigError({concat(name, ": most distances: got ", buckets.most, ", want more than ",
                              exact, " with ", buckets.count, " buckets")});
  return buckets;
}

/// A simulated pass finds the real places and leaves them.
bool hold(const Tensor& places, std::int64_t elements, const Stream& stream) {
  if (!places || places.elements() != elements) return false;
  const Device device = stream.device();
  return places.device() == device || places.device() == Device{device.type, device.index};
}

}  // namespace

RelativeBias::RelativeBias(const ModuleName& name, const Spec& spec, const Stream& stream)
    : buckets_(checked(spec.buckets, name.here)),
      table_(name / "weight", {spec.heads, buckets_.count}, Role::kVector, stream) {
  const std::string there = table_.in_files().front().name;
  table_.set_in_files({{there, {buckets_.count, spec.heads}, /*transposed=*/true}});
}

void RelativeBias::join(std::int64_t heads) {
  if (heads != table_.shape()[0])
    throw ConfigError(
        {concat(table_.name(), ": it is of ", table_.shape()[0],
                " heads, and attention that shares it has ", heads, "; want as many")});
  if (layers_++ > 0) table_.add_contributor();
}

std::vector<std::int32_t> RelativeBias::places_of(std::int64_t time) const {
  std::vector<std::int32_t> places;
  for (std::int64_t head = 0; head < table_.shape()[0]; ++head)
    for (std::int64_t distance = 1 - time; distance < time; ++distance)
      places.push_back(static_cast<std::int32_t>(head * buckets_.count + buckets_.of(distance)));
  return places;
}

const Tensor& RelativeBias::places(std::int64_t time, const Stream& stream) {
  const std::int64_t elements = table_.shape()[0] * (2 * time - 1);
  if (hold(places_, elements, stream)) return places_;
  const MemoryLabel label("relative bias");
  places_ = {};  // before the new ones take memory
  places_ = Tensor::empty({1, elements}, DType::kI32, MemoryKind::kParameters, stream);
  if (stream.device().simulated) return places_;
  outdate_recordings();
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(places_.shape(), DType::kI32, MemoryKind::kWorkspace, host);
  std::ranges::copy(places_of(time), values.data<std::int32_t>());
  wait_for_copy(places_, values, stream);
  return places_;
}

/// The table's numbers are rows of one column, in which tokens of an embedding are looked up.
Tensor RelativeBias::values(std::int64_t time, const Stream& stream) {
  const Tensor& read = places(time, stream);
  Tensor bias =
      Tensor::empty({table_.shape()[0], 2 * time - 1}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Weight held = table_.acquire_master(stream);
  const Tensor& table = held;
  kernels::embedding_forward(bias.view({1, bias.elements(), 1}), read,
                             table.view({table_.elements(), 1}), Tensor{}, 0, stream);
  return bias;
}

void RelativeBias::backward(const Attended& attended, const kernels::AttentionSpec& spec,
                            const Stream& stream) {
  GradientContribution dtable(table_, stream);
  if (!dtable.wanted()) return;
  const auto& [dy, y, log_sum_exp, qkv, positions] = attended;
  const Tensor dbias =
      Tensor::empty(spec.bias.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::attention_bias_backward(dbias, kernels::GradientMode::kOverwrite, dy, y, log_sum_exp,
                                   qkv, positions, spec, stream);
  const kernels::GradientMode mode = dtable.next_mode();
  kernels::embedding_backward(dtable.gradient().view({table_.elements(), 1}), mode, Tensor{}, mode,
                              dbias.view({1, dbias.elements(), 1}), places(qkv.size(1), stream),
                              stream);
}

}  // namespace hybrid_trainer
