#pragma once

#include <cstdint>
#include <vector>

namespace hybrid_trainer {

/// Weight of each frequency k · 40 Hz in each band: (mels, 201). Triangles of equal area on Slaney's
/// mel scale, which is linear up to 1 kHz and logarithmic above.
std::vector<double> mel_filters(std::int64_t mels);

}  // namespace hybrid_trainer
