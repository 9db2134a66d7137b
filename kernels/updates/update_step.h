#pragma once

#include <cmath>

#include "hybrid_trainer/core/dtype.h"
#include "kernels/updates/optimizer_update.h"

namespace hybrid_trainer::kernels {

// Bit-identical on every backend: constexpr functions also compile as device code.

/// Returns 32 random bits: a stateless hash of the element and of a key for tensor and step.
constexpr std::uint32_t random_bits(std::uint32_t key, std::int64_t element) {
  std::uint32_t x = static_cast<std::uint32_t>(element) ^ key;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

/// Rounds x to bf16, up with a probability proportional to its distance from the lower number, so
/// that sums of many small changes are unbiased. Preserves infinities and NaNs. `random` has 16
/// random bits. Source: Zamirai et al. 2020, "Revisiting BFloat16 training".
constexpr BFloat16 round_stochastically(float x, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t special = x != x ? bits | 0x00400000u : bits;
  const bool is_finite = (bits & 0x7F800000u) != 0x7F800000u;
  const std::uint32_t rounded = is_finite ? bits + (random & 0xFFFFu) : special;
  return BFloat16{static_cast<std::uint16_t>(rounded >> 16)};
}

/// Stores a moment: unchanged in f32, rounded stochastically in bf16.
constexpr void store_moment(float* to, float x, std::uint32_t) { *to = x; }
constexpr void store_moment(BFloat16* to, float x, std::uint32_t random) {
  *to = round_stochastically(x, random);
}

// Parts of Adafactor used by every backend; constexpr functions also compile as device code.

/// Returns g² + ε1, which keeps second moments positive.
constexpr float squared(float gradient) { return gradient * gradient + 1e-30f; }

/// Returns the learning rate, reduced so that the root mean square of the update is at most 1.
constexpr float clipped_rate(float learning_rate, double mean_square) {
  const float size = static_cast<float>(std::sqrt(mean_square));
  return size > 1.0f ? learning_rate / size : learning_rate;
}

/// Returns a·b + c, on CUDA rounded once, so that a weight's bits do not depend on the kernel.
constexpr float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

/// The two bias corrections of Adam in one step, combined with the other factors.
struct AdamFactors {
  explicit AdamFactors(const AdamWSettings& s)
      : step_size(static_cast<float>(s.learning_rate / correction(s.beta1, s.step))),
        variance_scale(static_cast<float>(1.0 / correction(s.beta2, s.step))),
        epsilon(s.epsilon) {}
  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }
  constexpr float change(float m, float v) const {
    return -step_size * m / (std::sqrt(v * variance_scale) + epsilon);
  }
  float step_size;
  float variance_scale;
  float epsilon;
};

struct AdamWStep {
  explicit AdamWStep(const AdamWSettings& s = {})
      : factors(s),
        beta1(s.beta1),
        beta2(s.beta2),
        gradient_scale(s.gradient_scale),
        kept(1.0f - s.learning_rate * s.weight_decay) {}
  /// Returns the new weight and updates the moments m and v with the gradient.
  constexpr float operator()(float weight, float gradient, float& m, float& v) const {
    const float scaled = gradient * gradient_scale;
    const float mean = multiply_add(beta1, m, (1.0f - beta1) * scaled);
    const float square = multiply_add(beta2, v, (1.0f - beta2) * scaled * scaled);
    m = mean;
    v = square;
    return multiply_add(weight, kept, factors.change(mean, square));
  }
  AdamFactors factors;
  float beta1;
  float beta2;
  float gradient_scale;
  float kept;  // share of the weight that remains after decay
};

/// Pointers to AdamW's quantized moments.
struct QuantizedPointers {
  explicit QuantizedPointers(const QuantizedMoments& moments)
      : m_codes(moments.m_codes.data<std::uint8_t>()),
        v_codes(moments.v_codes.data<std::uint8_t>()),
        m_scales(moments.m_scales.data<float>()),
        v_scales(moments.v_scales.data<float>()) {}
  std::uint8_t *m_codes, *v_codes;
  float *m_scales, *v_scales;
};

struct LionStep {
  explicit LionStep(const LionSettings& settings = {})
      : s(settings), kept(1.0f - s.learning_rate * s.weight_decay) {}
  static constexpr float sign(float x) {
    return static_cast<float>(x > 0) - static_cast<float>(x < 0);
  }
  /// Returns the new weight and updates the momentum m with the gradient.
  constexpr float operator()(float weight, float gradient, float& m) const {
    const float last = m, scaled = gradient * s.gradient_scale;
    m = multiply_add(s.beta2, last, (1.0f - s.beta2) * scaled);
    const float ahead = multiply_add(s.beta1, last, (1.0f - s.beta1) * scaled);
    return multiply_add(weight, kept, -s.learning_rate * sign(ahead));
  }
  LionSettings s;
  float kept;
};

struct AdamMiniStep {
  AdamMiniStep(const AdamWSettings& s, std::int64_t length)
      : step(s),
        mean_factor(static_cast<double>(s.gradient_scale) * s.gradient_scale /
                    static_cast<double>(length)) {}
  /// Returns the block's next v. `square_sum` is the sum of squares of the gradients before
  /// multiplication by gradient_scale.
  constexpr float square(float v, double square_sum) const {
    return multiply_add(step.beta2, v,
                        (1.0f - step.beta2) * static_cast<float>(square_sum * mean_factor));
  }
  /// Returns the factor of m for all weights of the block.
  constexpr float rate(float v) const { return step.factors.change(1.0f, v); }
  /// Returns the new weight and updates its m.
  constexpr float operator()(float weight, float gradient, float& m, float rate) const {
    m = multiply_add(step.beta1, m, (1.0f - step.beta1) * (gradient * step.gradient_scale));
    return multiply_add(rate, m, weight * step.kept);
  }
  AdamWStep step;
  double mean_factor;
};

}  // namespace hybrid_trainer::kernels
