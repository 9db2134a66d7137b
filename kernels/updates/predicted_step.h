#pragma once

#include <algorithm>

#include "kernels/updates/predicted_update.h"
#include "kernels/updates/update_step.h"

namespace hybrid_trainer::kernels {

// Predictions of updates on every backend; constexpr functions also compile as device code.

/// Pointers to the gradients in flight; null from `count` on and for undefined rows and columns.
struct InFlight {
  explicit InFlight(std::span<const GradientInFlight> gradients) {
    for (const GradientInFlight& one : gradients) {
      gradient[count] = one.gradient.data<float>();
      rows[count] = static_cast<const float*>(one.rows.raw());
      columns[count] = static_cast<const float*>(one.columns.raw());
      scale[count++] = one.scale;
    }
  }
  const float* gradient[kMaxInFlight] = {};
  const float* rows[kMaxInFlight] = {};
  const float* columns[kMaxInFlight] = {};
  float scale[kMaxInFlight] = {};
  int count = 0;
};

/// Pointers to the starting momentum: `values` if it is f32, else `codes` and `scales`, or null.
struct MomentumStart {
  explicit MomentumStart(const StartingMomentum& m)
      : scales(static_cast<const float*>(m.scales.raw())) {
    if (!m.values) return;
    if (m.values.dtype() == DType::kU8) {
      codes = m.values.data<std::uint8_t>();
    } else {
      values = m.values.data<float>();
    }
  }
  const float* values = nullptr;
  const std::uint8_t* codes = nullptr;
  const float* scales;
};

/// The update steps of the gradients in flight. Each is an AdamWStep or a LionStep.
template <class Step, class Settings>
struct PredictedSteps : InFlight {
  PredictedSteps(std::span<const GradientInFlight> gradients, Settings settings, bool decays_base)
      : InFlight(gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      settings.learning_rate = gradients[i].learning_rate;
      settings.gradient_scale = gradients[i].scale;
      if constexpr (requires { settings.step; }) ++settings.step;
      step[i] = Step(settings);
      if (decays_base) base_kept *= step[i].kept;
    }
  }
  Step step[kMaxInFlight];
  float base_kept = 1;
};
using PredictedAdamW = PredictedSteps<AdamWStep, AdamWSettings>;
using PredictedLion = PredictedSteps<LionStep, LionSettings>;

/// Makes an AdamWStep in which `square` replaces the square of the gradient.
constexpr float step_with_square(const AdamWStep& step, float weight, float gradient, float square,
                                 float& m, float& v) {
  m = step.beta1 * m + (1.0f - step.beta1) * (gradient * step.gradient_scale);
  v = step.beta2 * v + (1.0f - step.beta2) * square;
  return weight * step.kept + step.factors.change(m, v);
}

/// Returns the factor 1 / (mean(rows) + 1e-30) of rows_r·columns_c. `sum` is the sum of n rows.
constexpr float inverse_mean(double sum, std::int64_t n) {
  return 1.0f / (static_cast<float>(sum / static_cast<double>(n)) + 1e-30f);
}

struct InFlightMomentum {
  /// Returns G_i and advances d from d_(i−1) to d_i.
  constexpr float operator()(float& d, float scaled) const {
    d = momentum * d + scaled;
    return scaled + momentum * d;
  }
  float momentum;
};

/// Constants of predicted_muon, whose change is a weighted sum of the gradients.
struct PredictedMuon : InFlight {
  PredictedMuon(const Tensor& base, std::span<const GradientInFlight> gradients, float momentum,
                float update_scale, float weight_decay)
      : InFlight(gradients),
        momentum(momentum),
        min_side(static_cast<double>(std::min(base.size(0), base.size(1)))) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      rate[i] = gradients[i].learning_rate * update_scale;
      kept[i] = 1.0f - gradients[i].learning_rate * weight_decay;
      decayed_shares[i] = std::pow(static_cast<double>(momentum), 2.0 * static_cast<double>(i + 2));
    }
  }
  /// Computes the factor of each gradient, scale·(c_j + β·Σ_{i>=j} β^(i−j)·c_i), with c_i the
  /// factor of G_i.
  constexpr void find_factors(float* factors, double momentum_squares,
                              const double* squares) const {
    double later_kept = 1, through_momentum = 0;
    for (int i = count - 1; i >= 0; --i) {
      const double square = momentum_squares * decayed_shares[i] + squares[i];
      const double factor = square == 0 ? 0 : -rate[i] * later_kept / std::sqrt(square / min_side);
      through_momentum = factor + momentum * through_momentum;
      factors[i] = static_cast<float>((factor + momentum * through_momentum) * scale[i]);
      later_kept *= kept[i];
    }
  }
  double momentum;
  double min_side;
  double rate[kMaxInFlight] = {};
  double kept[kMaxInFlight] = {};
  double decayed_shares[kMaxInFlight] = {};  // remaining share of the squared norm of the momentum
};

}  // namespace hybrid_trainer::kernels
