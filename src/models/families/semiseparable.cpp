#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"

namespace hybrid_trainer {

namespace {

ProductFiles own_files(const ModelConfig&) { return {}; }

ModelPreset semiseparable_tiny(const char* name, const char* mixers, bool bidirectional) {
  return {name,
          {.family = "semiseparable",
           .layers = 4,
           .heads = 8,
           .width = 128,
           .context = 1 << 20,  // its state has a constant size
           .tied_head = true,
           .mixers = mixers,
           .bidirectional = bidirectional},
          16,
          64,
          "muon",
          1e-2};
}

}  // namespace

ModelFamily semiseparable_family() {
  return hybrid_decoder_family(
      {.name = "semiseparable",
       .title = "semiseparable",
       .letters = "acmdtp",
       .pattern = "t",
       .encoder_letters = "ahtpb",
       .files = HybridDecoder::Files{.mixer = "mix",
                                     .mixer_norm = "ln_1",
                                     .mixer_products = own_files,
                                     .mlp_norm = "ln_2",
                                     .mlp_products = ProductFiles{.first = {"gate_proj", "up_proj"},
                                                                  .last = "down_proj"}},
       .presets = {semiseparable_tiny("semiseparable-tiny", "t", false),
                   semiseparable_tiny("bk-tiny", "b", true)}});
}

}  // namespace hybrid_trainer
