#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer {

/// Site of the random numbers for dropout behind what an encoder begins with; its blocks' follow. A
/// decoder's are below.
inline constexpr std::uint64_t kFirstEncoderSite = std::uint64_t{1} << 20;

/// "encoder.h.0" and so on, alike, each of these branches.
std::vector<std::unique_ptr<ResidualBlock>> encoder_blocks(std::int64_t layers,
                                                           const ResidualSpec& residual,
                                                           const LayerSpec& layer,
                                                           const Stream& stream);

}  // namespace hybrid_trainer
