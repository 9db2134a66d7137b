#include "kernels/generated/machine.h"

#include <algorithm>
#include <vector>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend/dispatch.h"
#include "src/core/clock.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels {

void prepare_products(const ProductRun& run, const Stream& stream) {
  const KernelCall call{"prepare_products", stream, Work::kProduct};
  dispatch<cpu::prepare_products, cuda::prepare_products>(call, run);
}

namespace {

bool on_cuda(const Stream& stream) { return stream.device().type == DeviceType::kCuda; }

/// Returns the seconds of one call of `work`, on CUDA by the device's clock over many calls.
template <class Work>
double seconds_of(const Stream& stream, const Work& work) {
  const int calls = on_cuda(stream) ? 4 : 1;
  Event begin, end;
  stream.synchronize();
  const auto start = Clock::now();
  begin.record(stream);
  for (int call = 0; call < calls; ++call) work();
  end.record(stream);
  stream.synchronize();
  const double on_host = seconds_since(start);
  return (on_cuda(stream) ? Event::seconds_between(begin, end) : on_host) / calls;
}

/// Returns the duration of the fastest of several runs in seconds, after a warm-up run.
template <class Work>
double best_seconds(const Stream& stream, int runs, const Work& work) {
  work();
  double best = 1e30;
  for (int run = 0; run < runs; ++run) best = std::min(best, seconds_of(stream, work));
  return best;
}

/// Returns random numbers in (-1, 1). Zeros would draw less power and could raise the clock rate.
Tensor noise(const Shape& shape, DType dtype, const Stream& stream) {
  const Stream host(MemoryPool::create("noise"));
  const Tensor numbers =
      Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, on_cuda(stream) ? host : stream);
  float* const out = numbers.data<float>();
  for (std::int64_t i = 0; i < numbers.elements(); ++i)
    out[i] = 2 * to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
  Tensor tensor = numbers;
  if (on_cuda(stream)) {
    tensor = Tensor::empty_like(numbers, MemoryKind::kWorkspace, stream);
    wait_for_copy(tensor, numbers, stream);
  }
  if (dtype == DType::kF32) return tensor;
  const Tensor rounded = Tensor::empty(shape, dtype, MemoryKind::kWorkspace, stream);
  cast(rounded, tensor, stream);
  return rounded;
}

std::int64_t large_elements(const Stream& stream) {
  if (!on_cuda(stream)) return std::int64_t{64} << 20;
  const std::size_t cache_bytes = cuda_runtime().properties(stream.device().index).cache_bytes;
  return static_cast<std::int64_t>(20 * cache_bytes / sizeof(float));
}

struct ProductCase {
  std::int64_t m, n, k;
  Transpose transpose_b;
};

/// Returns the products of a GPT-2 step and, on CUDA, two larger ones that fill the device.
std::vector<ProductCase> product_cases(const Stream& stream) {
  std::vector<ProductCase> cases = {{1024, 2304, 768, Transpose::kYes},
                                    {1024, 768, 768, Transpose::kNo},
                                    {1024, 3072, 768, Transpose::kNo},
                                    {1024, 768, 3072, Transpose::kYes}};
  if (on_cuda(stream)) {
    cases.push_back({8192, 4096, 4096, Transpose::kYes});
    cases.push_back({8192, 8192, 8192, Transpose::kYes});
  }
  return cases;
}

}  // namespace

double measure_product_rate(DType inputs, const Stream& stream) {
  double best = 0;
  for (const auto& [m, n, k, transpose_b] : product_cases(stream)) {
    const bool transposed = transpose_b == Transpose::kYes;
    const Tensor a = noise({m, k}, inputs, stream);
    const Tensor b = noise(transposed ? Shape{n, k} : Shape{k, n}, inputs, stream);
    const Tensor c = Tensor::empty({m, n}, inputs, MemoryKind::kWorkspace, stream);
    const int runs = m * n <= (std::int64_t{1} << 22) ? 12 : 3;
    const double seconds = best_seconds(stream, runs, [&] {
      matmul(c, a, Transpose::kNo, b, transpose_b, GradientMode::kOverwrite, stream);
    });
    best = std::max(best, 2.0 * static_cast<double>(m * n) * static_cast<double>(k) / seconds);
  }
  return best;
}

double measure_copy_rate(const Stream& stream, std::optional<std::size_t> array_bytes) {
  const std::int64_t elements = array_bytes
                                    ? static_cast<std::int64_t>(*array_bytes / sizeof(float))
                                    : large_elements(stream);
  const Tensor from = Tensor::zeros({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor to = Tensor::empty_like(from, MemoryKind::kWorkspace, stream);
  const double seconds = best_seconds(stream, 5, [&] { cast(to, from, stream); });
  return 2.0 * static_cast<double>(from.bytes()) / seconds;
}

void find_all_bits(const Tensor& bits, const Tensor& x, const Stream& stream) {
  const KernelCall call{"find_all_bits", stream, Work::kReduction};
  check_shape(call, {"bits", bits}, {1}, DType::kI32);
  check_dtype(call, {"x", x}, DType::kF32);
  dispatch<cpu::find_all_bits, cuda::find_all_bits>(call, bits, x);
}

double measure_read_rate(const Stream& stream) {
  const Tensor from =
      Tensor::zeros({large_elements(stream)}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor bits = Tensor::empty({1}, DType::kI32, MemoryKind::kWorkspace, stream);
  const double seconds = best_seconds(stream, 5, [&] { find_all_bits(bits, from, stream); });
  require(*wait_for_host(bits, stream).data<std::int32_t>() == 0,
          "measure_read_rate: memory of zeros was read back as other values");
  return static_cast<double>(from.bytes()) / seconds;
}

}  // namespace hybrid_trainer::kernels
