#include "hybrid_trainer/phases/trainable.h"

#include <cmath>

namespace hybrid_trainer {

bool GradientMeasurement::finite() const { return std::isfinite(loss) && std::isfinite(norm); }

}  // namespace hybrid_trainer
