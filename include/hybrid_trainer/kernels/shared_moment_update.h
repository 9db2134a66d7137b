#pragma once

#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer::kernels {

// Updates whose second moments many weights share.

/// One fused Adam-mini step: AdamW's, where v has one element for each block of w, and the mean of
/// g² over the block takes the place of g². w, m, g: same shape, f32; v: (blocks) f32, blocks of
/// w.elements() / blocks consecutive elements. `compute_copy` as in adamw_update. Source: Zhang et
/// al. 2024, "Adam-mini: use fewer learning rates to gain more", algorithm 1.
void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings,
                      const Stream& stream);
/// direction = −lr·m̂/(√v̂ + ε), as adamw_direction.
void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream& stream);

struct AdafactorSettings {
  float learning_rate = 0;
  float decay = 0;  // of the second moments in this step, β̂2
  float weight_decay = 0;
  float gradient_scale = 1;  // multiplies the gradient first
};

/// One Adafactor step on w as a matrix (R, C) of rows of its last dimension, with G the scaled g:
///   rows (R) = decay·rows + (1 − decay)·means of G² + 1e-30 over a row, columns (C) likewise
///   u_ij = G_ij / √(rows_i·columns_j / mean of rows), clipped to a root mean square of 1
///   w = w·(1 − lr·weight_decay) − lr·u
/// For a vector, (1, C), that is Adam's full second moment. Bits depend on the sizes and, on a
/// processor, the number of threads. Source: Shazeer & Stern 2018, algorithms 4 and 5 with the rate
/// lr, without its relative step.
void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream);

}  // namespace hybrid_trainer::kernels
