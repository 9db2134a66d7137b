#pragma once

#include "hybrid_trainer/kernels/window.h"
#include "kernels/check.h"

namespace hybrid_trainer::kernels {

/// Throws ShapeMismatch where x, whose dtype is checked, is not (B, D1..Dn, C) with n from 1 to 3 and
/// something in each dimension, or `window` has no place in one of its dimensions: it is larger than the
/// padded places, or reads padding alone. Sizes are named.
void check_window(const KernelCall& call, const NamedTensor& x, const Window& window);

}  // namespace hybrid_trainer::kernels
