#include "hybrid_trainer/kernels/four_bit.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_block.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// Rounded twice, also where the caller has fused multiply-add.
[[gnu::noinline]] float magnitude(float level, float scale, float offset) {
  return level * scale + offset;
}

/// Of n numbers of a block whose scale is a normal number: how many middles are below each.
inline void find_places(std::uint8_t* places, const float* x, int n, float scale) {
  float bounds[kFourBitMiddles.size()];
  for (std::size_t k = 0; k < kFourBitMiddles.size(); ++k) bounds[k] = kFourBitMiddles[k] * scale;
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    int place = 0;
    for (const float bound : bounds) place += x[i] > bound ? 1 : 0;
    places[i] = static_cast<std::uint8_t>(place);
  }
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

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream&) {
  std::uint8_t* const codes = to.codes.data<std::uint8_t>();
  float* const scales = to.scales.data<float>();
  const float* const x = values.data<float>();
  const std::int64_t count = values.elements();
  const std::int64_t blocks = (count + kFourBitBlock - 1) / kFourBitBlock;
  parallel_rows(blocks, kFourBitBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kFourBitBlock;
      const int n = static_cast<int>(std::min(kFourBitBlock, count - first));
      const float scale = scales[block] = scale_of(x + first, n);
      std::uint8_t places[kFourBitBlock];
      std::fill_n(places, kFourBitBlock, std::uint8_t{kFourBitZero});
      if (scale > 0) find_places(places, x + first, n, scale);
      for (int i = 0; i < n; i += 2)
        codes[(first + i) / 2] = static_cast<std::uint8_t>(places[i] << 4 | places[i + 1]);
    }
  });
}

}  // namespace hybrid_trainer::kernels::cpu
