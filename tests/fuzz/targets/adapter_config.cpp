#include "src/model_files/adapters/adapter_config.h"

#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const AdapterConfig config = read_adapter_config_file(input_file("adapter_config.json", input));
  for (const char* const module :
       {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head",
        "model.layers.1.mlp.experts.3.w1", "transformer.h.0.attn.c_attn", "score"}) {
    unless_rejected([&] {
      config.is_target(module);
      config.is_whole(module);
      config.rank_of(module);
      config.scale_of(module);
      config.is_parameter(std::string(module) + ".weight");
      config.name_there(module);
    });
  }
}
