#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// What tells one family of decoders that rotate, gate and norm by the root mean square from
/// another.
struct RotaryDecoder {
  const char* name;
  const char* title;
  const char* model_type;
  const char* architecture;
  bool biased_queries = false;  // of queries, keys and values, whatever the config says
  bool query_key_norm = false;
  bool gemma = false;        // gains 1 + weight, norms behind branches, GELU, scaled embedding
  const char* windows = "";  // pattern of layers with a window; empty: the family has none
  bool window_rope = false;  // layers with a window have a base of their own
  bool caps = false;         // of scores and logits, and a scale of scores
  bool attention_bias = false, mlp_bias = false;  // keys that it has
  bool head_dim = true;                           // in config.json
  // What a missing key of config.json means: 0 follows from the others.
  double file_key_heads = 0, file_head_size = 0, file_context = 0, file_theta = 1e4;
  bool file_tied_head = false;
  WindowKeys window_keys = WindowKeys::kNone;
  std::vector<ModelPreset> (*presets)() = nullptr;
};

ModelConfig resolved_rotary_decoder(const RotaryDecoder& kind, const ModelConfig& given);
DecoderSpec rotary_decoder_spec(const RotaryDecoder& kind, const ModelConfig& given);
void collect_rotary_decoder_problems(const RotaryDecoder& kind, const ModelConfig& config,
                                     std::vector<std::string>& problems);
std::vector<HuggingFaceLayout::Fixed> rotary_decoder_written_keys(const ModelConfig& config);
std::vector<FileTensor> rotary_decoder_file_tensors(const RotaryDecoder& kind,
                                                    const Parameter& parameter,
                                                    const ModelConfig& config);
/// Without what depends on the kind at compile time.
ModelFamily rotary_decoder_row(const RotaryDecoder& kind);

/// The registry's row.
template <const RotaryDecoder& kKind>
ModelFamily rotary_decoder_family() {
  ModelFamily family = rotary_decoder_row(kKind);
  family.collect_problems = [](const ModelConfig& config, std::vector<std::string>& problems) {
    collect_rotary_decoder_problems(kKind, config, problems);
  };
  family.resolved = [](const ModelConfig& config) {
    return resolved_rotary_decoder(kKind, config);
  };
  family.make = [](const ModelConfig& config, std::uint64_t seed,
                   const Stream& stream) -> std::unique_ptr<LanguageModel> {
    return std::make_unique<Decoder>(config, rotary_decoder_spec(kKind, config), seed, stream);
  };
  family.step_flops = [](const ModelConfig& config, std::int64_t batch, std::int64_t time) {
    return decoder_step_flops(config, rotary_decoder_spec(kKind, config), batch, time);
  };
  family.recomputed_flops = [](const ModelConfig& config, std::int64_t batch, std::int64_t time,
                               double share, Rebuild least) {
    return decoder_recomputed_flops(config, rotary_decoder_spec(kKind, config), batch, time, share,
                                    least);
  };
  family.hugging_face.tensors = [](const Parameter& parameter, const ModelConfig& config) {
    return rotary_decoder_file_tensors(kKind, parameter, config);
  };
  return family;
}

}  // namespace hybrid_trainer
