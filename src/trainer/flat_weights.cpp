#include "src/trainer/flat_weights.h"

#include <algorithm>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

Tensor part_of(const Tensor& tensor, const Shard& elements) {
  return tensor.view({tensor.elements()}).rows(elements.first, elements.last);
}

Tensor FlatWeights::zeros(std::int64_t elements) const {
  return Tensor::zeros({elements}, DType::kF32, MemoryKind::kPredictor, stream_);
}

/// call(weight, elements of it, the same among `elements`) for each weight that has some of them.
template <class Call>
void FlatWeights::for_each_part(const Shard& elements, const Call& call) const {
  for (Parameter* const weight : weights_) {
    const std::int64_t start = layout_.first_element(*weight);
    const std::int64_t first = std::max(start, elements.first),
                       last = std::min(start + weight->elements(), elements.last);
    if (first >= last) continue;
    call(*weight, Shard{first - start, last - start},
         Shard{first - elements.first, last - elements.first});
  }
}

void FlatWeights::read(const Tensor& values, const Shard& elements) const {
  for_each_part(elements,
                [&](const Parameter& weight, const Shard& of_weight, const Shard& of_values) {
                  const Weight master = weight.acquire_master(stream_);
                  copy(part_of(values, of_values), part_of(master.tensor(), of_weight), stream_);
                });
}

void FlatWeights::write(const Tensor& values, const Shard& elements) const {
  for_each_part(elements, [&](Parameter& weight, const Shard& of_weight, const Shard& of_values) {
    const bool is_all = of_weight.elements() == weight.elements();
    {
      const Weight master = weight.acquire_master(stream_, is_all ? Use::kWrite : Use::kChange);
      copy(part_of(master.tensor(), of_weight), part_of(values, of_values), stream_);
    }
    weight.refresh_compute_copy(stream_);
  });
}

}  // namespace hybrid_trainer
