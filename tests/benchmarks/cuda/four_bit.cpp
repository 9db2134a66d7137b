#include "kernels/quantized/quantization.h"

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

/// Quantizes random numbers to NormalFloat 4 with fixed levels.
FourBitTensors quantized(const KernelTimer& timer, const Tensor& values) {
  const Stream& stream = timer.stream();
  const std::int64_t n = values.elements();
  const FourBitTensors to{Tensor::empty({(n + 1) / 2}, DType::kU8, MemoryKind::kWorkspace, stream),
                          Tensor(),
                          Tensor::empty({(n + kFourBitBlock - 1) / kFourBitBlock}, DType::kF32,
                                        MemoryKind::kWorkspace, stream)};
  quantize_four_bit(to, values, stream);
  return to;
}

}  // namespace

void time_four_bit(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().parameters;
  timer.time({"dequantize_four_bit", dtype, Limit::kCopy, 0}, [&] {
    const FourBitTensors from = quantized(timer, timer.random({n}, DType::kF32));
    const Tensor values = timer.random({n}, dtype);
    return moving({from.codes, from.scales, values},
                  [=, &stream] { dequantize_four_bit(values, from, stream); });
  });
  timer.time({"dequantize_four_bit, quantized scales", dtype, Limit::kCopy, 0}, [&] {
    const FourBitTensors from = FourBitTensors::empty(n, FourBitType::kNormal, stream);
    for (const Tensor& part : {from.codes, from.levels, from.scales}) fill_zero(part, stream);
    const Tensor values = timer.random({n}, dtype);
    return moving({from.codes, from.levels, from.scales, values},
                  [=, &stream] { dequantize_four_bit(values, from, stream); });
  });
  const std::int64_t c = timer.sizes().channels;
  for (const std::int64_t rows : {1, 8}) {
    const std::string name = "four_bit_linear of " + std::to_string(rows) + " rows";
    timer.time({name, dtype, Limit::kRead, 0}, [&, rows] {
      const FourBitTensors w = FourBitTensors::empty(4 * c * c, FourBitType::kNormal, stream);
      for (const Tensor& part : {w.codes, w.levels, w.scales}) fill_zero(part, stream);
      const Tensor x = timer.random({rows, c}, dtype), y = timer.random({rows, 4 * c}, dtype);
      return moving({w.codes, w.levels, w.scales, x, y}, [=, &stream] {
        four_bit_linear(y, x, {w, 0, 4 * c}, Tensor(), Tensor(), stream);
      });
    });
  }
  if (dtype != DType::kF32) return;  // only f32 weights are quantized
  timer.time({"quantize_four_bit", dtype, Limit::kCopy, 0}, [&] {
    const Tensor values = timer.random({n}, dtype);
    const FourBitTensors to = quantized(timer, values);
    return moving({values, to.codes, to.scales},
                  [=, &stream] { quantize_four_bit(to, values, stream); });
  });
}

}  // namespace hybrid_trainer::benchmarks
