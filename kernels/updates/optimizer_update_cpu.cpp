#include "kernels/elementwise/map_cpu.h"
#include "kernels/quantized/quantized_block_cpu.h"
#include "kernels/updates/optimizer_update.h"
#include "kernels/updates/update_step.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Sets w[i] to next(w[i], i), and copies it to compute_copy if that is defined.
template <class Next>
void update_weights(const Tensor& w, const Tensor& compute_copy, const Next& next) {
  float* const weight = w.data<float>();
  if (!compute_copy) {
    parallel_for(w.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) weight[i] = next(weight[i], i);
    });
    return;
  }
  BFloat16* const copy = compute_copy.data<BFloat16>();
  parallel_for(w.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = next(weight[i], i);
      weight[i] = value;
      store(copy + i, value);
    }
  });
}

/// Returns the sign (+1, 0 or −1) of the value that a code of the signed map represents.
float sign_of(const std::uint8_t* code) {
  return static_cast<float>(*code > 0) - 2.0f * static_cast<float>(*code > 128);
}
float sign_of(const float* m) { return LionStep::sign(*m); }
float sign_of(const BFloat16* m) { return LionStep::sign(load(m)); }

struct MomentBlock {
  alignas(64) float m[kQuantizationBlock];
  alignas(64) float v[kQuantizationBlock];
};

struct Moments : QuantizedPointers {
  using QuantizedPointers::QuantizedPointers;
  /// Decodes the block's n elements, which begin at element `at`.
  void decode(MomentBlock& to, std::int64_t block, std::int64_t at, int n) const {
    decode_block<QuantizationMap::kSigned>(to.m, m_codes + at, n, m_scales[block], set);
    decode_block<QuantizationMap::kUnsigned>(to.v, v_codes + at, n, v_scales[block], set);
  }
  void encode(const MomentBlock& from, std::int64_t block, std::int64_t at, int n) const {
    m_scales[block] = encode_block<QuantizationMap::kSigned>(m_codes + at, from.m, n, set);
    v_scales[block] = encode_block<QuantizationMap::kUnsigned>(v_codes + at, from.v, n, set);
  }
  InstructionSet set = instruction_set();
};

}  // namespace

void adamw_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& compute_copy, const AdamWSettings& settings, const Stream&) {
  const AdamWStep step(settings);
  const std::uint32_t key = settings.rounding_key;
  const std::int64_t before = settings.first_element;
  const float* const gradient = g.data<float>();
  visit_real(m.dtype(), [&]<class T>(T) {
    T* const first = m.data<T>();
    T* const second = v.data<T>();
    update_weights(w, compute_copy, [=](float weight, std::int64_t i) {
      float mean = load(first + i), square = load(second + i);
      const float next = step(weight, gradient[i], mean, square);
      const std::uint32_t random = std::is_same_v<T, float> ? 0 : random_bits(key, before + i);
      store_moment(first + i, mean, random);
      store_moment(second + i, square, random >> 16);
      return next;
    });
  });
}

void adamw_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings, const Stream&) {
  const AdamFactors factors(settings);
  visit_real(m.dtype(), [&]<class T>(T) {
    map_elements(
        direction.elements(),
        [=](float mean, float square) { return factors.change(mean, square); },
        direction.data<float>(), m.data<T>(), v.data<T>());
  });
}

void sgd_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                float learning_rate, float momentum, float weight_decay, float gradient_scale,
                const Stream&) {
  const float kept = 1.0f - learning_rate * weight_decay;
  const float* const gradient = g.data<float>();
  if (momentum == 0.0f) {
    update_weights(w, compute_copy, [=](float weight, std::int64_t i) {
      return weight * kept - learning_rate * (gradient[i] * gradient_scale);
    });
    return;
  }
  float* const velocity = m.data<float>();
  update_weights(w, compute_copy, [=](float weight, std::int64_t i) {
    const float next = momentum * velocity[i] + gradient[i] * gradient_scale;
    velocity[i] = next;
    return weight * kept - learning_rate * next;
  });
}

void lion_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                 const LionSettings& settings, const Stream&) {
  const LionStep step(settings);
  const float* const gradient = g.data<float>();
  visit_real(m.dtype(), [&]<class T>(T) {
    T* const momentum = m.data<T>();
    update_weights(w, compute_copy, [=](float weight, std::int64_t i) {
      float now = load(momentum + i);
      const float next = step(weight, gradient[i], now);
      store_moment(momentum + i, now,
                   std::is_same_v<T, float>
                       ? 0
                       : random_bits(step.s.rounding_key, step.s.first_element + i));
      return next;
    });
  });
}

void lion_direction(const Tensor& direction, const Tensor& m, float learning_rate, const Stream&) {
  float* const out = direction.data<float>();
  const auto write = [=](const auto* momentum) {
    parallel_for(direction.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) out[i] = -learning_rate * sign_of(momentum + i);
    });
  };
  if (m.dtype() == DType::kU8) return write(m.data<std::uint8_t>());
  visit_real(m.dtype(), [&]<class T>(T) { write(m.data<T>()); });
}

void muon_momentum(const Tensor& u, const Tensor& m, const Tensor& g, const Tensor& squares,
                   float momentum, float gradient_scale, const Stream&) {
  float* const out = u.data<float>();
  float* const velocity = m.data<float>();
  const float* const gradient = g.data<float>();
  const float moves = *squares.data<double>() == 0 ? 0.0f : 1.0f;
  parallel_for(u.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float scaled = gradient[i] * gradient_scale;
      const float next = momentum * velocity[i] + scaled;
      velocity[i] = next;
      out[i] = moves * (scaled + momentum * next);
    }
  });
}

void decayed_step(const Tensor& w, const Tensor& u, const Tensor& compute_copy, float step_size,
                  float decay_factor, const Stream&) {
  const float* const direction = u.data<float>();
  update_weights(w, compute_copy, [=](float weight, std::int64_t i) {
    return weight * decay_factor - step_size * direction[i];
  });
}

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings, const Stream&) {
  const AdamWStep step(settings);
  const Moments state(moments);
  float* const weights = w.data<float>();
  const float* const gradients = g.data<float>();
  BFloat16* const copies = optional_data<BFloat16>(compute_copy);
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
  BFloat16* const copies = optional_data<BFloat16>(compute_copy);
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
