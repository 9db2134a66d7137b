#include "hybrid_trainer/kernels/optimizer_update.h"
#include "kernels/cpu/quantized_block.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/update_step.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// The moments of one block, in f32.
struct MomentBlock {
  alignas(64) float m[kQuantizationBlock];
  alignas(64) float v[kQuantizationBlock];
};

/// The memory of QuantizedMoments.
struct Moments {
  explicit Moments(const QuantizedMoments& moments)
      : m_codes(moments.m_codes.data<std::uint8_t>()),
        v_codes(moments.v_codes.data<std::uint8_t>()),
        m_scales(moments.m_scales.data<float>()),
        v_scales(moments.v_scales.data<float>()) {}
  /// The n elements of the block that begins at `at`.
  void decode(MomentBlock& to, std::int64_t block, std::int64_t at, int n) const {
    decode_block<QuantizationMap::kSigned>(to.m, m_codes + at, n, m_scales[block], set);
    decode_block<QuantizationMap::kUnsigned>(to.v, v_codes + at, n, v_scales[block], set);
  }
  void encode(const MomentBlock& from, std::int64_t block, std::int64_t at, int n) const {
    m_scales[block] = encode_block<QuantizationMap::kSigned>(m_codes + at, from.m, n, set);
    v_scales[block] = encode_block<QuantizationMap::kUnsigned>(v_codes + at, from.v, n, set);
  }
  std::uint8_t* m_codes;
  std::uint8_t* v_codes;
  float* m_scales;
  float* v_scales;
  InstructionSet set = instruction_set();
};

}  // namespace

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings, const Stream&) {
  const AdamWStep step(settings);
  const Moments state(moments);
  float* const weights = w.data<float>();
  const float* const gradients = g.data<float>();
  BFloat16* const copies = compute_copy ? compute_copy.data<BFloat16>() : nullptr;
  for_quantized_blocks(w.elements(), [=](std::int64_t block, std::int64_t at, int n) {
    MomentBlock now;
    float* const weight = weights + at;
    const float* const gradient = gradients + at;
    state.decode(now, block, at, n);
#pragma omp simd
    for (int i = 0; i < n; ++i) weight[i] = step(weight[i], gradient[i], now.m[i], now.v[i]);
    state.encode(now, block, at, n);
    if (copies == nullptr) return;
    BFloat16* const copy = copies + at;
#pragma omp simd
    for (int i = 0; i < n; ++i) store(copy + i, weight[i]);
  });
}

void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream&) {
  const AdamFactors factors(settings);
  const Moments state(moments);
  float* const out = direction.data<float>();
  for_quantized_blocks(direction.elements(), [=](std::int64_t block, std::int64_t at, int n) {
    MomentBlock now;
    float* const to = out + at;
    state.decode(now, block, at, n);
#pragma omp simd
    for (int i = 0; i < n; ++i) to[i] = factors.change(now.m[i], now.v[i]);
  });
}

void lion_update_8bit(const Tensor& w, const Tensor& m_codes, const Tensor& m_scales,
                      const Tensor& g, const Tensor& compute_copy, const LionSettings& settings,
                      const Stream&) {
  const LionStep step(settings);
  const InstructionSet set = instruction_set();
  float* const weights = w.data<float>();
  std::uint8_t* const codes = m_codes.data<std::uint8_t>();
  float* const scales = m_scales.data<float>();
  const float* const gradients = g.data<float>();
  BFloat16* const copies = compute_copy ? compute_copy.data<BFloat16>() : nullptr;
  for_quantized_blocks(w.elements(), [=](std::int64_t block, std::int64_t at, int n) {
    alignas(64) float m[kQuantizationBlock];
    float* const weight = weights + at;
    const float* const gradient = gradients + at;
    decode_block<QuantizationMap::kSigned>(m, codes + at, n, scales[block], set);
#pragma omp simd
    for (int i = 0; i < n; ++i) weight[i] = step(weight[i], gradient[i], m[i]);
    scales[block] = encode_block<QuantizationMap::kSigned>(codes + at, m, n, set);
    if (copies == nullptr) return;
    BFloat16* const copy = copies + at;
#pragma omp simd
    for (int i = 0; i < n; ++i) store(copy + i, weight[i]);
  });
}

}  // namespace hybrid_trainer::kernels::cpu
