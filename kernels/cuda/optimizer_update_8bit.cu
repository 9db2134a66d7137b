#include "hybrid_trainer/kernels/optimizer_update.h"
#include "kernels/cuda/quantized_block.cuh"
#include "kernels/update_step.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// The memory of QuantizedMoments.
struct Moments {
  explicit Moments(const QuantizedMoments& moments)
      : m_codes(moments.m_codes.data<std::uint8_t>()),
        v_codes(moments.v_codes.data<std::uint8_t>()),
        m_scales(moments.m_scales.data<float>()),
        v_scales(moments.v_scales.data<float>()) {}
  template <int N>
  __device__ void decode(float (&m)[kPerLane], float (&v)[kPerLane], std::int64_t block,
                         std::int64_t begin, int count, const SharedTables& tables) const {
    decode_lane<N>(m, m_codes + begin, m_scales[block], count, tables.of_signed);
    decode_lane<N>(v, v_codes + begin, v_scales[block], count, tables.of_unsigned);
  }
  template <int N>
  __device__ void encode(const float (&m)[kPerLane], const float (&v)[kPerLane], std::int64_t block,
                         std::int64_t begin, int count, const SharedTables& tables) const {
    encode_lane<N>(m_codes + begin, m_scales + block, m, count, tables.of_signed);
    encode_lane<N>(v_codes + begin, v_scales + block, v, count, tables.of_unsigned);
  }
  std::uint8_t* m_codes;
  std::uint8_t* v_codes;
  float* m_scales;
  float* v_scales;
};

struct Update {
  float* w;
  BFloat16* compute_copy;  // or null
  const float* g;
  Moments moments;
  AdamWStep step;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float weight[kPerLane], gradient[kPerLane], m[kPerLane], v[kPerLane];
    load_lane<N>(weight, w + begin, count);
    load_lane<N>(gradient, g + begin, count);
    moments.decode<N>(m, v, block, begin, count, tables);
    for (int k = 0; k < kPerLane; ++k) weight[k] = step(weight[k], gradient[k], m[k], v[k]);
    store_lane<N>(w + begin, weight, count);
    if (compute_copy != nullptr) store_lane<N>(compute_copy + begin, weight, count);
    moments.encode<N>(m, v, block, begin, count, tables);
  }
};

struct Direction {
  float* direction;
  Moments moments;
  AdamFactors factors;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float m[kPerLane], v[kPerLane];
    moments.decode<N>(m, v, block, begin, count, tables);
    for (int k = 0; k < kPerLane; ++k) m[k] = factors.change(m[k], v[k]);
    store_lane<N>(direction + begin, m, count);
  }
};

struct LionUpdate {
  float* w;
  BFloat16* compute_copy;  // or null
  const float* g;
  std::uint8_t* codes;
  float* scales;
  LionStep step;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float weight[kPerLane], gradient[kPerLane], m[kPerLane];
    load_lane<N>(weight, w + begin, count);
    load_lane<N>(gradient, g + begin, count);
    decode_lane<N>(m, codes + begin, scales[block], count, tables.of_signed);
    for (int k = 0; k < kPerLane; ++k) weight[k] = step(weight[k], gradient[k], m[k]);
    store_lane<N>(w + begin, weight, count);
    if (compute_copy != nullptr) store_lane<N>(compute_copy + begin, weight, count);
    encode_lane<N>(codes + begin, scales + block, m, count, tables.of_signed);
  }
};

}  // namespace

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings,
                       const Stream& stream) {
  const Update body{w.data<float>(), compute_copy ? compute_copy.data<BFloat16>() : nullptr,
                    g.data<float>(), Moments(moments), AdamWStep(settings)};
  for_quantized_blocks(stream, "adamw_update_8bit", w.elements(), body, body.w, body.compute_copy,
                       body.g, body.moments.m_codes, body.moments.v_codes);
}

void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream& stream) {
  const Direction body{direction.data<float>(), Moments(moments), AdamFactors(settings)};
  for_quantized_blocks(stream, "adamw_direction_8bit", direction.elements(), body, body.direction,
                       body.moments.m_codes, body.moments.v_codes);
}

void lion_update_8bit(const Tensor& w, const Tensor& m_codes, const Tensor& m_scales,
                      const Tensor& g, const Tensor& compute_copy, const LionSettings& settings,
                      const Stream& stream) {
  const LionUpdate body{
      w.data<float>(),        compute_copy ? compute_copy.data<BFloat16>() : nullptr,
      g.data<float>(),        m_codes.data<std::uint8_t>(),
      m_scales.data<float>(), LionStep(settings)};
  for_quantized_blocks(stream, "lion_update_8bit", w.elements(), body, body.w, body.compute_copy,
                       body.g, body.codes);
}

}  // namespace hybrid_trainer::kernels::cuda
