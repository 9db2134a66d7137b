#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// What the losses of a grid's cells consist of.
struct GridLossSpec {
  float positive_weight = 1;  // of cells with an object, in the binary cross entropy
  float box_weight = 1, class_weight = 1;
  float beta = 1;  // of boxes, above 0
};

/// The loss of each cell of a grid that has an object, of the class classes[n] at boxes[n], or none, where
/// classes[n] is kNoTarget. x: (N, 5 + classes) f32, rows hold a logit for whether there is an object,
/// four numbers for its box, and the logits of its class. losses[n], f32: the binary cross entropy of the
/// first, as PyTorch's binary_cross_entropy_with_logits with pos_weight; and of cells with an object,
/// box_weight times the sum over the box of d²/(2·beta) where |d| < beta, else |d| − beta/2, and
/// class_weight times the cross entropy of the class. Where `gradient_scale` is not 0, x becomes its own
/// gradient in place, times that. classes: (N) i32, kNoTarget or in [0, classes): any other throws
/// DataError on a processor and gives the loss NaN on CUDA. boxes: (N, 4) f32.
void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream);

}  // namespace hybrid_trainer::kernels
