#include "src/models/encoder_blocks.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::vector<std::unique_ptr<ResidualBlock>> encoder_blocks(std::int64_t layers,
                                                           const ResidualSpec& residual,
                                                           const LayerSpec& layer,
                                                           const Stream& stream) {
  std::vector<std::unique_ptr<ResidualBlock>> blocks;
  std::uint64_t site = kFirstEncoderSite + 1;
  for (std::int64_t i = 0; i < layers; ++i) {
    const ModuleName name(concat("encoder.h.", i), concat("encoder.layers.", i));
    blocks.push_back(std::make_unique<ResidualBlock>(name, residual, layer, site, stream));
    site += layer.size();
  }
  return blocks;
}

}  // namespace hybrid_trainer
