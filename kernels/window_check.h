#pragma once

#include "hybrid_trainer/kernels/window.h"
#include "kernels/check.h"

namespace hybrid_trainer::kernels {

/// Checks the dtype of x, and throws ShapeMismatch where x is not (B, D1..Dn, C), n from 1 to 3, or is
/// empty. So it does where `window` has no place in a dimension: where it is larger than the padded places,
/// or reads padding alone. The message names the sizes.
void check_window(const KernelCall& call, const NamedTensor& x, const Window& window);

}  // namespace hybrid_trainer::kernels
