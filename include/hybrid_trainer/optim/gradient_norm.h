#pragma once

#include <vector>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Sums of squares that together are that of all gradients that were written, in their order, (1) f64
/// each on the stream's device: one of those there, and one of each that lies elsewhere.
std::vector<Tensor> gradient_square_sums(const std::vector<Parameter*>& parameters,
                                         const Stream& stream);
/// The L2 norm from them; not finite where an element is not. Blocks.
double wait_for_norm(const std::vector<Tensor>& square_sums, const Stream& stream);

/// The factor that brings gradients of this norm down to at most `clip_norm`; 1 if `clip_norm` is 0
/// (off) or the norm is not above it. A norm that is not finite gives 1: the caller has to check it
/// first. Source: Pascanu et al. 2013, algorithm 1.
float clip_scale(double norm, double clip_norm);

}  // namespace hybrid_trainer
