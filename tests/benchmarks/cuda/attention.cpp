#include "hybrid_trainer/kernels/attention.h"

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {

void time_attention(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t b = sizes.batch, t = sizes.length, c = sizes.channels;
  // Two products of the lower triangle forward, five backward.
  const double forward_operations = 2.0 * static_cast<double>(b * t) * static_cast<double>(t * c);
  for (const std::int64_t head_size : {64, 128}) {
    const int heads = static_cast<int>(c / head_size);
    const double calls = head_size == 64 ? static_cast<double>(sizes.layers) : 0;
    const std::string suffix = ", head size " + std::to_string(head_size);
    const auto make = [&](bool backward) {
      const Tensor qkv = timer.random({b, t, 3 * c}, dtype), y = timer.random({b, t, c}, dtype),
                   log_sum_exp = timer.random({b, heads, t}, DType::kF32);
      const auto forward = [=, &stream] {
        kernels::attention_forward(y, log_sum_exp, qkv, Tensor(), heads, stream);
      };
      const auto bytes = static_cast<std::size_t>(bytes_of({qkv, y}));
      if (!backward) return Work{forward_operations, bytes, forward};
      forward();
      const Tensor dqkv = timer.random({b, t, 3 * c}, dtype), dy = timer.random({b, t, c}, dtype);
      return Work{2.5 * forward_operations, 2 * bytes, [=, &stream] {
                    kernels::attention_backward(dqkv, dy, y, log_sum_exp, qkv, Tensor(), heads,
                                                stream);
                  }};
    };
    timer.time({"attention_forward" + suffix, dtype, Limit::kProduct, calls},
               [&] { return make(false); });
    timer.time({"attention_backward" + suffix, dtype, Limit::kProduct, calls},
               [&] { return make(true); });
  }
}

}  // namespace hybrid_trainer::benchmarks
