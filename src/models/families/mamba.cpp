#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/families/hybrid_layouts.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kAnyLength = 1 << 20;  // its state does not grow

std::vector<ModelPreset> mamba_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t width, StateSpaceConfig sizes) {
    return ModelConfig{.family = "mamba2",
                       .layers = layers,
                       .width = width,
                       .context = kAnyLength,
                       .tied_head = true,
                       .state_space = sizes};
  };
  return {{"mamba2-tiny", shape(6, 128, {.heads = 8, .head_size = 32, .state_size = 32}), 16, 64,
           "muon", 1e-2},
          {"mamba2-130m", shape(24, 768, {.heads = 24, .head_size = 64}), 4, 1024, "adamw", 6e-4,
           50288}};
}

}  // namespace

ModelFamily mamba2_family() {
  return hybrid_decoder_family({.name = "mamba2",
                                .title = "Mamba-2",
                                .letters = "m",
                                .pattern = "m",
                                .has_feed_forward = false,
                                .files = {.tokens = "embeddings",
                                          .final_norm = "norm_f",
                                          .mixer = "mixer",
                                          .mixer_norm = "norm",
                                          .mixer_products = state_space_files},
                                .layout = mamba2_layout(),
                                .presets = mamba_presets()});
}

}  // namespace hybrid_trainer
