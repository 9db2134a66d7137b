#include "tests/benchmarks/cuda/kernel_timing.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer::benchmarks {
Sizes sizes_of(const std::string& scale) {
  if (scale == "small") return {2, 32, 1, 128, 150, 160, 3000, {64, 32, 16}};
  return {64, 1024, 12, 768, 50257, 50304, 124'475'904, {8192, 4096, 512}};
}

const char* name_of(Limit limit) {
  return limit == Limit::kProduct ? "product" : limit == Limit::kCopy ? "copy" : "read";
}

bool in_bf16_step(const Kernel& kernel) {
  return kernel.dtype == DType::kBF16 || kernel.name.starts_with("adamw") ||
         kernel.name == "sum_of_squares";
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

Work moving(std::initializer_list<Tensor> tensors, std::function<void()> run) {
  const double bytes = bytes_of(tensors);
  return {bytes, static_cast<std::size_t>(bytes), std::move(run)};
}

double Rates::of(const Kernel& kernel) const {
  if (kernel.limit == Limit::kCopy) return copy;
  if (kernel.limit == Limit::kRead) return read;
  return kernel.dtype == DType::kBF16 ? bf16_product : f32_product;
}

double bytes_of(const Kernel& kernel, const Work& work) {
  return kernel.limit == Limit::kProduct ? static_cast<double>(work.footprint_bytes) : work.amount;
}

KernelTimer::KernelTimer(Sizes sizes, std::string only, const Stream& stream)
    : sizes_(std::move(sizes)), only_(std::move(only)), stream_(stream) {
  const Stream host(MemoryPool::create("noise"));
  const std::int64_t count = std::min<std::int64_t>(sizes_.parameters, 1 << 23);
  const Tensor numbers = Tensor::empty({count}, DType::kF32, MemoryKind::kWorkspace, host);
  float* const out = numbers.data<float>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = 2 * to_unit_float(random_word({7}, static_cast<std::uint64_t>(i))) - 1;
  }
  noise_ = wait_for_device(numbers, stream);
}

Tensor KernelTimer::random(const Shape& shape, DType dtype) const {
  const Tensor values = Tensor::empty(shape, dtype, MemoryKind::kWorkspace, stream_);
  const Tensor flat = values.view({values.elements()});
  for (std::int64_t begin = 0; begin < flat.elements(); begin += noise_.elements()) {
    const std::int64_t end = std::min(flat.elements(), begin + noise_.elements());
    kernels::cast(flat.rows(begin, end), noise_.rows(0, end - begin), stream_);
  }
  return values;
}

Tensor KernelTimer::tokens(const Shape& shape) const {
  const auto vocabulary = static_cast<std::uint64_t>(sizes_.vocabulary);
  return integers(shape, [=](std::int64_t i) {
    return static_cast<std::int64_t>(random_below({8}, static_cast<std::uint64_t>(i), vocabulary));
  });
}

Tensor KernelTimer::integers(const Shape& shape,
                             const std::function<std::int64_t(std::int64_t)>& value) const {
  const Stream host(MemoryPool::create("integers"));
  const Tensor numbers = Tensor::empty(shape, DType::kI32, MemoryKind::kWorkspace, host);
  for (std::int64_t i = 0; i < numbers.elements(); ++i)
    numbers.data<std::int32_t>()[i] = static_cast<std::int32_t>(value(i));
  return wait_for_device(numbers, stream_);
}

Tensor KernelTimer::places(std::int64_t document) const {
  const std::int64_t length = sizes_.length;
  return integers({sizes_.batch, length}, [=](std::int64_t i) { return i % length % document; });
}

void KernelTimer::time(const Kernel& kernel, const std::function<Work()>& make) {
  if (kernel.name.find(only_) == std::string::npos) return;
  try {
    timings_.push_back(timed(kernel, make));
  } catch (const Error& error) {
    timings_.push_back({.kernel = kernel, .problem = error.what()});
  }
  if (listener_) listener_(timings_.back());
}

}  // namespace hybrid_trainer::benchmarks
