#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

struct AdamWSettings {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  /// Multiplies the gradient first, for clipping and the mean over micro-batches.
  float gradient_scale = 1;
  std::int64_t step = 1;  // counted from 1, for the bias corrections
  /// Random key for stochastic rounding of bf16 moments, specific to this tensor and step.
  std::uint32_t rounding_key = 0;
  /// Index of element 0 in the whole tensor; selects the random bits for rounding.
  std::int64_t first_element = 0;
};

/// Makes one fused AdamW step: m = β1·m + (1−β1)·g, v = β2·v + (1−β2)·g², w = w·(1 − lr·decay) −
/// lr·m̂/(√v̂ + ε). w, m, v, g: same shape, f32, except that m and v may both be bf16. bf16 moments
/// are read as f32 and rounded stochastically when stored, with the same bits on every device.
/// `compute_copy` is a bf16 copy of w that is refreshed, or undefined. Source: Loshchilov & Hutter
/// 2019, algorithm 2.
void adamw_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& compute_copy, const AdamWSettings& settings, const Stream& stream);

struct AdamWUpdate {
  Tensor w, m, v, g, compute_copy;
  AdamWSettings settings;
};
/// Calls adamw_update for each update, on CUDA dozens per launch, with the same bits.
void adamw_updates(const std::vector<AdamWUpdate>& updates, const Stream& stream);

/// direction = −lr·m̂/(√v̂ + ε): the AdamW step without a new gradient and without decay.
void adamw_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings, const Stream& stream);

/// AdamW's moments of a parameter of N elements. `quantize` has quantized both moments to one byte
/// per element: m with the signed map, v with the unsigned map. Codes: u8 of the parameter's shape;
/// scales: (quantization_blocks(N)) f32. All-zero codes and scales represent zero moments.
struct QuantizedMoments {
  Tensor m_codes, m_scales;
  Tensor v_codes, v_scales;
};

/// Like adamw_update and adamw_direction, but on quantized moments, in one pass over memory:
/// dequantizes the moments, updates them in f32, updates the weights with the unrounded moments,
/// and quantizes the moments again.
void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings,
                       const Stream& stream);
void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream& stream);

/// m = momentum·m + g·gradient_scale; w = w·(1 − lr·decay) − lr·m. m is undefined if momentum is 0.
void sgd_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                float learning_rate, float momentum, float weight_decay, float gradient_scale,
                const Stream& stream);

struct LionSettings {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0;
  float gradient_scale = 1;        // applied to the gradient first
  std::uint32_t rounding_key = 0;  // see AdamWSettings
  std::int64_t first_element = 0;
};

/// Makes one fused Lion step: w = w·(1 − lr·decay) − lr·sign(β1·m + (1−β1)·g), m = β2·m + (1−β2)·g,
/// with sign(0) = 0. See adamw_update. Source: Chen et al. 2023, algorithm 2.
void lion_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                 const LionSettings& settings, const Stream& stream);
/// Like lion_update, but m is quantized by the signed map; see adamw_update_8bit.
void lion_update_8bit(const Tensor& w, const Tensor& m_codes, const Tensor& m_scales,
                      const Tensor& g, const Tensor& compute_copy, const LionSettings& settings,
                      const Stream& stream);
/// direction = −lr·sign(m): the Lion step without gradient and decay. m: f32, bf16, or codes.
void lion_direction(const Tensor& direction, const Tensor& m, float learning_rate,
                    const Stream& stream);

/// Makes the first half of a Muon step: m = momentum·m + g·gradient_scale, u = g·gradient_scale +
/// momentum·m (Nesterov). If `squares`, (1) f64, the sum of squares of g, is 0, sets u to 0, so
/// that a matrix with a zero gradient does not move.
void muon_momentum(const Tensor& u, const Tensor& m, const Tensor& g, const Tensor& squares,
                   float momentum, float gradient_scale, const Stream& stream);
/// w = w·decay_factor − step_size·u, with decay_factor = 1 − lr·decay. Also writes compute_copy.
void decayed_step(const Tensor& w, const Tensor& u, const Tensor& compute_copy, float step_size,
                  float decay_factor, const Stream& stream);

// Updates in which many weights share a second moment.

/// Makes one fused Adam-mini step. Differs from AdamW in that v has one element for each block of
/// w, and the mean of g² over the block replaces g². w, m, g: same shape, f32; v: (blocks) f32. A
/// block is w.elements() / blocks consecutive elements. `compute_copy` as in adamw_update. Source:
/// Zhang et al. 2024, "Adam-mini: use fewer learning rates to gain more", algorithm 1.
void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings,
                      const Stream& stream);
/// direction = −lr·m̂/(√v̂ + ε); see adamw_direction.
void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream& stream);

struct AdafactorSettings {
  float learning_rate = 0;
  float decay = 0;  // decay of the second moments in this step, β̂2
  float weight_decay = 0;
  float gradient_scale = 1;  // applied to the gradient first
};

/// Makes one Adafactor step. Treats w as a matrix (R, C) of rows of its last dimension; a vector is
/// (1, C). With G the scaled g:
///   rows (R) = decay·rows + (1 − decay)·(means of G² + 1e-30 over each row), columns (C) likewise,
///   u_ij = G_ij / √(rows_i·columns_j / mean of rows), clipped to a root mean square of 1,
///   w = w·(1 − lr·weight_decay) − lr·u.
/// Vectors have Adam's full second moment. Bits depend on the sizes and, on a CPU, on the threads.
/// Source: Shazeer & Stern 2018, algorithms 4 and 5, with lr in place of the relative step.
void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream);

}  // namespace hybrid_trainer::kernels
