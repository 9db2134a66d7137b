// Times attention forward and backward at Whisper's sizes: bidirectional in an encoder, and from a
// decoder to its encoder. One line each: name, dtype, milliseconds forward and backward, the least
// of the runs.
// usage: attention_benchmark [f32|bf16 [heads of head size 64, else 6]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/attention.h"
#include "src/core/machine.h"

namespace {

using namespace hybrid_trainer;
using namespace hybrid_trainer::kernels;

constexpr std::int64_t kBatch = 4, kText = 448, kSource = 1500, kHeadSize = 64;
constexpr int kRuns = 5;

Tensor random(const Shape& shape, DType dtype, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const float value = to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 0.5f;
    if (dtype == DType::kF32) tensor.data<float>()[i] = value;
    if (dtype == DType::kBF16) tensor.data<BFloat16>()[i] = to_bfloat16(value);
  }
  return tensor;
}

double least_milliseconds(const std::function<void()>& work) {
  double least = 1e30;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    if (run > 0) least = std::min(least, spent.count());
  }
  return least;
}

void report(const char* name, DType dtype, const std::function<void()>& forward,
            const std::function<void()>& backward) {
  const double first = least_milliseconds(forward), second = least_milliseconds(backward);
  std::printf("%s %s %.2f %.2f\n", name, name_of(dtype), first, second);
  std::fflush(stdout);
}

void encoder(int heads, DType dtype, const Stream& stream) {
  const std::int64_t width = heads * kHeadSize;
  AttentionSpec spec(heads);
  spec.bidirectional = true;
  const Tensor qkv = random({kBatch, kSource, 3 * width}, dtype, stream),
               dqkv = Tensor::empty_like(qkv, MemoryKind::kActivations, stream),
               y = random({kBatch, kSource, width}, dtype, stream),
               dy = random(y.shape(), dtype, stream),
               log_sum_exp = random({kBatch, heads, kSource}, DType::kF32, stream);
  report(
      "encoder", dtype, [&] { attention_forward(y, log_sum_exp, qkv, Tensor(), spec, stream); },
      [&] { attention_backward(dqkv, dy, y, log_sum_exp, qkv, Tensor(), spec, stream); });
}

void cross(int heads, DType dtype, const Stream& stream) {
  const std::int64_t width = heads * kHeadSize;
  const Tensor q = random({kBatch, kText, width}, dtype, stream),
               kv = random({kBatch, kSource, 2 * width}, dtype, stream),
               dkv = Tensor::empty_like(kv, MemoryKind::kActivations, stream),
               dq = Tensor::empty_like(q, MemoryKind::kActivations, stream),
               y = random(q.shape(), dtype, stream), dy = random(q.shape(), dtype, stream),
               log_sum_exp = random({kBatch, heads, kText}, DType::kF32, stream);
  report(
      "cross", dtype,
      [&] { cross_attention_forward(y, log_sum_exp, q, kv, Tensor(), heads, stream); },
      [&] {
        cross_attention_backward(dq, dkv, dy, y, log_sum_exp, q, kv, Tensor(), heads, stream);
      });
}

}  // namespace

int main(int count, char** arguments) {
  const bool bf16 = count > 1 && std::strcmp(arguments[1], "bf16") == 0;
  const int heads = count > 2 ? std::atoi(arguments[2]) : 6;
  const DType dtype = bf16 ? DType::kBF16 : DType::kF32;
  const Stream stream(MemoryPool::create("benchmark"));
  encoder(heads, dtype, stream);
  cross(heads, dtype, stream);
  return 0;
}
