#pragma once

#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/hugging_face.h"

namespace hybrid_trainer {

/// The functions for networks, with the configuration of a language model.

inline void export_hugging_face(LanguageModel& model, const Tokenizer* tokenizer,
                                const fs::path& folder, const Stream& stream,
                                const ModelRegistry& registry = model_families(),
                                DType dtype = DType::kF32, const std::string& token_ids = "",
                                const ModelFolder& origin = {}, const fs::path& base_config = {}) {
  export_hugging_face(model, model.config(), tokenizer, folder, stream, registry, dtype, token_ids,
                      origin, base_config);
}
inline void read_hugging_face_weights(const ModelFolder& folder, LanguageModel& model,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families()) {
  read_hugging_face_weights(folder, model, model.config(), stream, registry);
}
inline void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                          const fs::path& folder, const Stream& stream,
                          const ModelRegistry& registry = model_families()) {
  write_adapter(model, model.config(), config, base, folder, stream, registry);
}
inline void read_adapter_weights(const fs::path& folder, LanguageModel& model, const Stream& stream,
                                 const ModelRegistry& registry = model_families(),
                                 const ValuesCallback& take = {}) {
  read_adapter_weights(folder, model, model.config(), stream, registry, take);
}

}  // namespace hybrid_trainer
