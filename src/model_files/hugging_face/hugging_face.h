#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// A model folder as Hugging Face transformers writes it; the model's family knows names and
/// layouts.

/// Writes config.json, generation_config.json and model.safetensors (the family's names and
/// layouts, no padding rows), tensors rounded to `dtype`, f32 or bf16; adapters are left out; weights that
/// are quantized as they are held, by bitsandbytes' keys, the others all in bf16 where that
/// rounds none of the vectors, else in f32; and the tokenizer's files where there is one and it is a BPE. Special tokens have the ids that
/// `token_ids` says, or else that of the end-of-text token (src/model_files/hugging_face/generation_config.h). Of `origin`, the
/// folder that the model began with, it takes over what the model has no part for: a vision model
/// beside it with its configuration and processors. Of `base_config`, the config.json that the model began
/// with, it keeps all values that the model does not change. The folder appears whole or not at all. Throws
/// CannotCreate if `folder` exists and is not empty or cannot be made, DataError if the tokenizer does
/// not belong to the model, IoError.
void export_hugging_face(Network& network, const ModelConfig& model, const Tokenizer* tokenizer,
                         const std::filesystem::path& folder, const Stream& stream,
                         const ModelRegistry& registry = model_families(),
                         DType dtype = DType::kF32, const std::string& token_ids = "",
                         const ModelFolder& origin = {},
                         const std::filesystem::path& base_config = {});
inline void export_hugging_face(LanguageModel& model, const Tokenizer* tokenizer,
                                const std::filesystem::path& folder, const Stream& stream,
                                const ModelRegistry& registry = model_families(),
                                DType dtype = DType::kF32, const std::string& token_ids = "",
                                const ModelFolder& origin = {},
                                const std::filesystem::path& base_config = {}) {
  export_hugging_face(model, model.config(), tokenizer, folder, stream, registry, dtype, token_ids,
                      origin, base_config);
}

/// Throws DataError where a folder cannot tell of such a model, as of a family of our own.
void check_hugging_face_export(const ModelConfig& model,
                               const ModelRegistry& registry = model_families());

/// bf16 where all tensors of a folder are but vectors of state-space mixers, else f32. Throws MissingInput, DataError.
DType dtype_of_hugging_face_weights(const ModelFolder& folder);

/// The model of a folder's config.json, with the dropout given here instead of the file's. Throws
/// MissingInput, or DataError: for a model_type of no family, or naming every key that is missing
/// or asks for a computation other than the family's.
ModelConfig read_hugging_face_model_config(const ModelFolder& folder, double dropout,
                                           const ModelRegistry& registry = model_families());

/// Takes all weights from a folder's model.safetensors or, where there is none, from the shards
/// that model.safetensors.index.json names; names with or without the family's prefix. Masks are
/// ignored, an "lm_head.weight" must equal a tied token table. Throws MissingInput, or DataError
/// that names what is missing, unknown or of another shape; the model may then hold some of the
/// weights. Compute copies are the caller's to refresh.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const Stream& stream,
                               const ModelRegistry& registry = model_families());
inline void read_hugging_face_weights(const ModelFolder& folder, LanguageModel& model,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families()) {
  read_hugging_face_weights(folder, model, model.config(), stream, registry);
}

/// Takes one weight.
using WeightTaker = std::function<void(Parameter& parameter, const FolderWeight& weight)>;
/// Source of token table and head: the folder, or an adapter that replaces both later; zeros until
/// then, with the model's number of rows instead of the folder's.
enum class TokenTables { kRead, kReplaced };
/// Reads one weight after the other, for a model whose own weights need no memory.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const WeightTaker& take,
                               const ModelRegistry& registry = model_families(),
                               TokenTables tables = TokenTables::kRead);
inline void read_hugging_face_weights(const ModelFolder& folder, LanguageModel& model,
                                      const WeightTaker& take,
                                      const ModelRegistry& registry = model_families()) {
  read_hugging_face_weights(folder, model, model.config(), take, registry);
}

/// Where `name`, which is no folder here, may be a model's on the Hub, "OWNER/MODEL": the end of an
/// error message that says how to get it; else "".
std::string how_to_download(const std::filesystem::path& name);

}  // namespace hybrid_trainer
