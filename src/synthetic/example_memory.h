#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// A tensor of a batch: the shape of one example's part.
struct ExampleTensor {
  std::string name;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kF32;
};

/// Memory for a batch of such tensors, not initialised.
Batch empty_examples(std::int64_t examples, const std::vector<ExampleTensor>& tensors,
                     const Stream& stream);

/// Where one example of a batch is written.
class ExampleMemory {
 public:
  ExampleMemory(const Batch& batch, std::int64_t example) : batch_(&batch), example_(example) {}
  std::span<float> floats(std::string_view name) const { return part<float>(name); }
  std::span<std::int32_t> labels(std::string_view name) const { return part<std::int32_t>(name); }

 private:
  template <class T>
  std::span<T> part(std::string_view name) const {
    const Tensor& all = batch_->at(name);
    const std::int64_t count = all.elements() / all.size(0);
    return {all.data<T>() + example_ * count, static_cast<std::size_t>(count)};
  }
  const Batch* batch_;
  std::int64_t example_;
};

}  // namespace hybrid_trainer
