#include "hybrid_trainer/kernels/four_bit.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// Rounded twice, also where the caller has fused multiply-add.
[[gnu::noinline]] float magnitude(float level, float scale, float offset) {
  return level * scale + offset;
}

}  // namespace

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream&) {
  const std::uint8_t* const codes = from.codes.data<std::uint8_t>();
  const std::uint8_t* const levels =
      from.levels.defined() ? from.levels.data<std::uint8_t>() : nullptr;
  const float* const of_codes = four_bit_values(from.type).data();
  const float *const scales = from.scales.data<float>(), offset = from.offset;
  const std::int64_t count = values.elements();
  visit_real(values.dtype(), [&](auto real) {
    auto* const to = values.data<decltype(real)>();
    const std::int64_t blocks = (count + kFourBitBlock - 1) / kFourBitBlock;
    parallel_rows(blocks, kFourBitBlock, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const float size = levels == nullptr
                               ? scales[block]
                               : magnitude(kFourBitLevels[levels[block]],
                                           scales[block / kFourBitLevelBlock], offset);
        float value[16];
        for (std::size_t code = 0; code < 16; ++code) value[code] = of_codes[code] * size;
        const std::int64_t first = block * kFourBitBlock,
                           last = std::min(count, first + kFourBitBlock);
        for (std::int64_t i = first; i < last; ++i)
          store(to + i, value[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15]);
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
