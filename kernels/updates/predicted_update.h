#pragma once

#include <cstddef>
#include <span>

#include "kernels/updates/optimizer_update.h"

namespace hybrid_trainer::kernels {

// Predicts weights while some updates are still computed elsewhere. `base` contains the updates
// that have arrived; each pending update is predicted from its gradient.

constexpr std::size_t kMaxInFlight = 8;

/// Computes the mean of (scale·x)², or of x if not `squares`, for each row (R) and column (C).
/// Treats x as a matrix of rows of its last dimension. rows, columns, x: f32. On a CPU, the bits
/// also depend on the number of threads.
void row_and_column_means(const Tensor& rows, const Tensor& columns, const Tensor& x, float scale,
                          bool squares, const Stream& stream);

/// A gradient whose exact update is pending, with this update's scale and learning rate.
struct GradientInFlight {
  Tensor gradient;  // f32, shape of the weight
  /// Means of the scaled squares of `gradient`; if undefined, the squares themselves are used.
  Tensor rows, columns;
  float scale = 1;  // multiplies `gradient`
  float learning_rate = 0;
};

/// Momentum from which a rule starts: undefined for zeros, f32, or signed 8-bit codes with scales.
struct StartingMomentum {
  Tensor values;
  Tensor scales;
};

/// Predicts weights under AdamW. The sum is over the gradients, oldest first, with i from 1:
///   w = base·(Π kept_i if decays_base) + Σ_i change_i·Π_{k>i} kept_k,
///   kept_i = 1 − lr_i·weight_decay,  m = β1·m + (1−β1)·s_i·g_i,  v = β2·v + (1−β2)·q_i,
///   change_i = −lr_i·(m / (1−β1^(t+i))) / (√(v / (1−β2^(t+i))) + ε)
/// m starts as the momentum `m`. v starts as a second moment factored into rows and columns, v_rc =
/// rows_r·columns_c / (mean(rows) + 1e-30). q_i is (s_i·g_i)² or, if the gradient has rows and
/// columns, is factored into these in the same way. t = settings.step is the number of updates
/// included in base's state. If t is 0, v starts at zero, and v_rows and v_columns may be
/// undefined. Ignores settings.learning_rate, gradient_scale and rounding_key. base: f32; w: f32 or
/// bf16 of base's shape, may be base. Source of the factors: Shazeer & Stern 2018, algorithm 1.
/// Throws Error for more than kMaxInFlight gradients.
void predicted_adamw(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                     const Tensor& v_rows, const Tensor& v_columns,
                     std::span<const GradientInFlight> gradients, bool decays_base,
                     const AdamWSettings& settings, const Stream& stream);

/// Predicts weights under Lion: change_i = −lr_i·sign(β1·m + (1−β1)·s_i·g_i), then m = β2·m +
/// (1−β2)·s_i·g_i. Otherwise like predicted_adamw. Ignores the rows and columns of gradients.
void predicted_lion(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                    std::span<const GradientInFlight> gradients, bool decays_base,
                    const LionSettings& settings, const Stream& stream);

/// squares[i] = ‖G_i‖² for the Nesterov momentum of the gradients in flight: d_i = β·d_(i−1) +
/// s_i·g_i from d_0 = 0, G_i = s_i·g_i + β·d_i. squares: (L) f64 for L gradients of one shape. On a
/// CPU, the bits also depend on the number of threads.
void in_flight_squares(const Tensor& squares, std::span<const GradientInFlight> gradients,
                       float momentum, const Stream& stream);

/// Predicts weights under Muon:
///   w = base + Σ_i −lr_i·update_scale·G_i / √((X_i + squares_i) / min(R, C))·Π_{k>i} kept_k,
///   X_i = momentum_squares·β^(2(i+1)).
/// To first order, this is the difference between orthogonalizing X + G and X. If X_i and squares_i
/// are both 0, term i is 0. momentum_squares: (1) f64 on the stream's device, the squared norm of
/// the exact momentum in base's state. squares: the result of in_flight_squares; not read if there
/// are no gradients. w: f32 or bf16 (R, C), may be base; base: f32.
void predicted_muon(const Tensor& w, const Tensor& base, const Tensor& momentum_squares,
                    const Tensor& squares, std::span<const GradientInFlight> gradients,
                    float momentum, float update_scale, float weight_decay, const Stream& stream);

}  // namespace hybrid_trainer::kernels
