#include "hybrid_trainer/kernels/attention.h"

#include <algorithm>

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using kernels::AttentionSpec;

/// Keys visible to a query: all previous ones, those in its document, or those in its window.
struct Sight {
  const char* name;
  std::int64_t document, window;  // tokens; 0: unlimited
};

/// Query-key pairs of `length` tokens, counted as half of each document's square, as other
/// benchmarks report, minus the pairs beyond the window.
double pairs_of(const Sight& sight, std::int64_t length) {
  double pairs = 0;
  const std::int64_t document = sight.document > 0 ? sight.document : length;
  for (std::int64_t begin = 0; begin < length; begin += document) {
    const auto keys = static_cast<double>(std::min(document, length - begin));
    const auto window = sight.window > 0 ? static_cast<double>(sight.window) : keys;
    pairs += window < keys ? window * (keys - window / 2) : keys * keys / 2;
  }
  return pairs;
}

/// Each token's position in its document, if there are several documents.
Tensor positions_of(const Sight& sight, const KernelTimer& timer) {
  return sight.document > 0 ? timer.places(sight.document) : Tensor();
}

void time_sight(KernelTimer& timer, DType dtype, std::int64_t head_size, const Sight& sight) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t b = sizes.batch, t = sizes.length;
  const std::int64_t heads = std::max<std::int64_t>(1, sizes.channels / head_size);
  const std::int64_t c = heads * head_size;
  AttentionSpec spec(static_cast<int>(heads));
  spec.window = sight.window;
  // Two products forward, five backward.
  const double forward_operations = 4.0 * static_cast<double>(b * c) * pairs_of(sight, t);
  const bool of_step = head_size == 64 && sight.document == 0 && sight.window == 0;
  const double calls = of_step ? static_cast<double>(sizes.layers) : 0;
  const std::string suffix = ", head size " + std::to_string(head_size) + sight.name;
  const Tensor positions = positions_of(sight, timer);
  const auto make = [&](bool backward) {
    const Tensor qkv = timer.random({b, t, 3 * c}, dtype), y = timer.random({b, t, c}, dtype),
                 log_sum_exp = timer.random({b, heads, t}, DType::kF32);
    const auto forward = [=, &stream] {
      kernels::attention_forward(y, log_sum_exp, qkv, positions, spec, stream);
    };
    const auto bytes = static_cast<std::size_t>(bytes_of({qkv, y}));
    if (!backward) return Work{forward_operations, bytes, forward};
    forward();
    const Tensor dqkv = timer.random({b, t, 3 * c}, dtype), dy = timer.random({b, t, c}, dtype);
    return Work{2.5 * forward_operations, 2 * bytes, [=, &stream] {
                  kernels::attention_backward(dqkv, dy, y, log_sum_exp, qkv, positions, spec,
                                              stream);
                }};
  };
  timer.time({"attention_forward" + suffix, dtype, Limit::kProduct, calls},
             [&] { return make(false); });
  timer.time({"attention_backward" + suffix, dtype, Limit::kProduct, calls},
             [&] { return make(true); });
}

/// Decodes one token of each of `texts` texts with full caches.
void time_decode(KernelTimer& timer, DType dtype, std::int64_t texts) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t t = sizes.length, c = sizes.channels, head_size = 64;
  const std::string name =
      "attention_decode, " + std::to_string(texts) + " texts of " + std::to_string(t) + " tokens";
  timer.time({name, dtype, Limit::kRead, 0}, [&] {
    const Tensor keys = timer.random({texts, t, c}, dtype),
                 values = timer.random({texts, t, c}, dtype),
                 qkv = timer.random({texts, 3 * c}, dtype), y = timer.random({texts, c}, dtype);
    const Tensor rows = timer.integers({texts}, [](std::int64_t i) { return i; });
    const Tensor last = timer.integers({texts}, [=](std::int64_t) { return t - 1; });
    return Work{bytes_of({keys, values}), static_cast<std::size_t>(bytes_of({keys, values})),
                [=, &stream] {
                  kernels::attention_decode(y, keys, values, qkv, rows, last,
                                            static_cast<int>(c / head_size), stream);
                }};
  });
}

}  // namespace

void time_attention(KernelTimer& timer, DType dtype) {
  const std::int64_t length = timer.sizes().length;
  const std::int64_t document = 3 * length / 10, window = length / 4;
  for (const std::int64_t head_size : {64, 128, 256}) {
    time_sight(timer, dtype, head_size, {"", 0, 0});
    if (head_size == 128 || dtype != DType::kBF16) continue;
    time_sight(timer, dtype, head_size, {", packed documents", document, 0});
    time_sight(timer, dtype, head_size, {", windowed", 0, window});
    time_sight(timer, dtype, head_size, {", packed and windowed", document, window / 2});
  }
  for (const std::int64_t texts : {1, 16}) time_decode(timer, dtype, texts);
}

}  // namespace hybrid_trainer::benchmarks
