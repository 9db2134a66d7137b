
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr unsigned int kThreads = 256;
constexpr std::int64_t kChunk = 16384;   // elements per block by default
static_assert(kChunk % kDotChunk == 0);  // so that memory for sums of kDotChunk chunks suffices
constexpr int kMaxPairs = 64;            // pairs per launch: kernel arguments are limited to 4 KiB

/// A pair of arrays, divided into chunks. If y is null, x is summed.
struct Pair {
  const void* x;
  const void* y;
  std::int64_t elements;
  std::int64_t first_chunk;  // index of its first chunk in the launch
};

struct Pairs {
  Pair of[kMaxPairs] = {};
  int count = 0;
  std::int64_t chunks = 0;
  double* sums = nullptr;  // one per chunk
  std::int64_t chunk = kChunk;
};

std::int64_t chunks_of(const Tensor& x) { return (x.elements() + kChunk - 1) / kChunk; }

template <int N, class T>
__device__ void load_partial(float (&to)[N], const T* from, std::int64_t i, std::int64_t end,
                             bool packed) {
  if (packed && i + N <= end) {
    load_pack(to, from + i);
  } else {
    for (int k = 0; k < N; ++k) to[k] = i + k < end ? load(from + i + k) : 0.0f;
  }
}

/// Threads add the same elements whether arrays are aligned or not, so that sums are the same.
template <class T>
__global__ void sum_chunks_kernel(Pairs pairs) {
  constexpr int N = kPackSize<T>;
  const std::int64_t chunk = blockIdx.x;
  int k = 0;
  while (k + 1 < pairs.count && pairs.of[k + 1].first_chunk <= chunk) ++k;
  const Pair& pair = pairs.of[k];
  const T* const x = static_cast<const T*>(pair.x);
  const T* const y = static_cast<const T*>(pair.y);
  const std::int64_t begin = (chunk - pair.first_chunk) * pairs.chunk;
  const std::int64_t end =
      begin + pairs.chunk < pair.elements ? begin + pairs.chunk : pair.elements;
  const bool packed = reinterpret_cast<std::uintptr_t>(x) % 16 == 0 &&
                      reinterpret_cast<std::uintptr_t>(y) % 16 == 0;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * N; i < end; i += kThreads * N) {
    float left[N], right[N];
    load_partial(left, x, i, end, packed);
    if (y != nullptr) {
      load_partial(right, y, i, end, packed);
    } else {
      for (float& one : right) one = 1;
    }
    for (int j = 0; j < N; ++j) sum += static_cast<double>(left[j]) * static_cast<double>(right[j]);
  }
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) pairs.sums[chunk] = sum;
}

__global__ void finish_sum_kernel(double* result, const double* sums, std::int64_t count,
                                  double divisor) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) *result = sum / divisor;
}

void launch_pairs(const Pairs& pairs, DType dtype, const Stream& stream) {
  visit_real(dtype, [&]<class T>(T) {
    launch(stream, "sum_chunks", sum_chunks_kernel<T>, Grid{.x = pairs.chunks, .threads = kThreads},
           pairs);
  });
}

/// result = the sum over all pairs, divided by `divisor`. Uses one launch per kMaxPairs pairs of
/// one dtype, and one that adds the sums of the chunks. If `y` is empty, sums x. Stores the chunks'
/// sums in `given` (f64, with room for all chunks), or in a workspace if it is undefined.
void add_up(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
            const Tensor& given, double divisor, const Stream& stream) {
  std::int64_t chunks = 0;
  for (const Tensor& one : x) chunks += chunks_of(one);
  const Tensor workspace = given ? given : empty_workspace(chunks, DType::kF64, stream);
  double* const sums = workspace.data<double>();
  Pairs pairs{.sums = sums};
  for (std::size_t k = 0; k < x.size(); ++k) {
    pairs.of[pairs.count++] = {x[k].raw(), y.empty() ? nullptr : y[k].raw(), x[k].elements(),
                               pairs.chunks};
    pairs.chunks += chunks_of(x[k]);
    const bool last = k + 1 == x.size();
    if (last || pairs.count == kMaxPairs || x[k + 1].dtype() != x[k].dtype()) {
      launch_pairs(pairs, x[k].dtype(), stream);
      pairs = {.sums = pairs.sums + pairs.chunks};
    }
  }
  launch(stream, "finish_sum", finish_sum_kernel, Grid{.threads = 1024}, result.data<double>(),
         sums, chunks, divisor);
}

}  // namespace

void chunk_dots(const Tensor& results, const Tensor& x, const Tensor& y, const Stream& stream) {
  if (x.elements() == 0) return;
  Pairs pairs{.sums = results.data<double>(), .chunk = kDotChunk};
  pairs.of[pairs.count++] = {x.raw(), y.raw(), x.elements(), 0};
  pairs.chunks = results.elements();
  launch_pairs(pairs, x.dtype(), stream);
}

void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
         const Tensor& sums, const Stream& stream) {
  add_up(result, x, y, sums, 1, stream);
}

void quotient(const Tensor& result, const Tensor& x, double divisor, const Stream& stream) {
  add_up(result, {&x, 1}, {}, {}, divisor, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
