#include "hybrid_trainer/core/batch.h"

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

Batch::Batch(std::vector<NamedTensor> tensors, std::int64_t tokens_per_example)
    : tensors_(std::move(tensors)), tokens_per_example_(tokens_per_example) {
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.size(0) == size()) continue;
    throw Error(ExitCode::kInternal,
                concat("a batch of ", size(), " examples: ", name, " has ", tensor.size(0)));
  }
}

const Tensor* Batch::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &NamedTensor::name);
  return found == tensors_.end() ? nullptr : &found->tensor;
}

const Tensor& Batch::at(std::string_view name) const {
  if (const Tensor* const found = find(name)) return *found;
  throw Error(ExitCode::kInternal,
              concat("the batch has no tensor ", name, ", only ", join(names_of(tensors_))));
}

Batch Batch::examples(std::int64_t begin, std::int64_t end) const {
  Batch part = with([&](const Tensor& tensor) { return tensor.rows(begin, end); });
  part.targets_ = targets_ * static_cast<double>(end - begin) / static_cast<double>(size());
  return part;
}

bool Batch::is_like(const Batch& other) const {
  if (targets_ != other.targets_) return false;
  return std::ranges::equal(tensors_, other.tensors_, [](const auto& one, const auto& two) {
    return one.name == two.name && one.tensor.shape() == two.tensor.shape() &&
           one.tensor.dtype() == two.tensor.dtype();
  });
}

Batch BatchUpload::to_device(const Batch& batch, const Stream& stream) {
  if (batch.tensors().front().tensor.device() == stream.device()) return batch;
  uploaded_.resize(batch.tensors().size());
  auto next = uploaded_.begin();
  return batch.with([&](const Tensor& part) {
    copy_part(*next, part, stream);
    return *next++;
  });
}

void BatchUpload::copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream) {
  if (!uploaded || uploaded.shape() != part.shape() || uploaded.dtype() != part.dtype())
    uploaded = Tensor::empty_like(part, MemoryKind::kData, stream);
  if (part.pinned()) {
    copy(uploaded, part, stream);
  } else {
    wait_for_copy(uploaded, part, stream);
  }
}

}  // namespace hybrid_trainer
