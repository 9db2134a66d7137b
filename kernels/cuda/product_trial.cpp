#include "kernels/cuda/product_trial.h"

#include <algorithm>
#include <limits>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer::kernels::cuda {

decltype(kernels::cast) cast;

namespace {

constexpr std::int64_t kNoiseElements = 1 << 18;

/// Random numbers in (-1, 1): zeros draw less power, so that their products clock differently.
Tensor make_noise(const Stream& stream) {
  const Stream host(MemoryPool::create("noise"));
  const Tensor numbers = Tensor::empty({kNoiseElements}, DType::kF32, MemoryKind::kWorkspace, host);
  for (std::int64_t i = 0; i < kNoiseElements; ++i) {
    numbers.data<float>()[i] = 2 * to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
  }
  return wait_for_device(numbers, stream);
}

Tensor make_flush(const Stream& stream) {
  const std::size_t cache = cuda_runtime().properties(stream.device().index).cache_bytes;
  return Tensor::empty({static_cast<std::int64_t>(2 * cache)}, DType::kU8, MemoryKind::kWorkspace,
                       stream);
}

}  // namespace

ProductTrial::ProductTrial(const Product& like, const Stream& stream)
    : stream_(stream, MemoryPool::create("trial", {}, cuda_memory(stream.device()))),
      noise_(make_noise(stream_)),
      flush_(make_flush(stream_)),
      product_(like) {
  product_.a = random_like(like.a);
  product_.b = random_like(like.b);
  product_.c = random_like(like.c);
  product_.addend = like.addend.raw() == like.c.raw() ? product_.c : random_like(like.addend);
  product_.bias = random_like(like.bias);
  product_.aux = random_like(like.aux);
}

Tensor ProductTrial::random_like(const Tensor& tensor) const {
  if (!tensor) return tensor;
  const Tensor made = Tensor::empty_like(tensor, MemoryKind::kWorkspace, stream_);
  const Tensor flat = made.view({made.elements()});
  for (std::int64_t begin = 0; begin < flat.elements(); begin += kNoiseElements) {
    const std::int64_t end = std::min(flat.elements(), begin + kNoiseElements);
    cuda::cast(flat.rows(begin, end), noise_.rows(0, end - begin), stream_);
  }
  return made;
}

double ProductTrial::seconds_of(
    const std::function<void(const Product&, const Stream&)>& run) const {
  Event begin, end;
  try {
    fill_zero(flush_, stream_);
    begin.record(stream_);
    run(product_, stream_);
    end.record(stream_);
    end.synchronize();
    return Event::seconds_between(begin, end);
  } catch (const DeviceError&) {
    return std::numeric_limits<double>::infinity();
  }
}

}  // namespace hybrid_trainer::kernels::cuda
