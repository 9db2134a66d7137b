#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Model folders in Hugging Face transformers' format; families define names and layouts.

/// Writes config.json, generation_config.json, model.safetensors (with the family's names and
/// layouts, without padding rows and adapters), and the tokenizer's files if it is a BPE. Tensors
/// are rounded to `dtype`, f32 or bf16. Quantized weights are written as stored, with bitsandbytes'
/// keys; the other weights of such a model are written in bf16 if that rounds none of the vectors,
/// else in f32. Special tokens have the ids in `token_ids`, or else the end-of-text token's id
/// (src/model_files/hugging_face/generation_config.h). `origin`, the model's original folder,
/// supplies parts that the model does not have: a vision model with its configuration and
/// processors. `base_config`, the original config.json, supplies all values that the model does not
/// change. The folder appears completely or not at all. Throws CannotCreate if `folder` cannot be
/// made, or exists and is not empty; DataError if the tokenizer is not the model's; IoError.
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

/// Throws DataError if the model cannot be stored as a Hugging Face folder, for example because
/// transformers does not have its family.
void check_hugging_face_export(const ModelConfig& model,
                               const ModelRegistry& registry = model_families());

/// Returns bf16 if all tensors of a folder are, except vectors of state-space mixers; else f32.
/// Throws MissingInput, DataError.
DType dtype_of_hugging_face_weights(const ModelFolder& folder);

/// Reads the model in a folder's config.json, with the given dropout instead of the file's. Throws
/// MissingInput, or DataError: for an unknown model_type, or naming every key that is missing or
/// not supported by the family.
ModelConfig read_hugging_face_model_config(const ModelFolder& folder, double dropout,
                                           const ModelRegistry& registry = model_families());

/// Reads all weights of a folder; names may omit the family's prefix. Ignores masks; an
/// "lm_head.weight" must equal a tied token table. Throws MissingInput, or DataError, naming
/// missing or unknown tensors and wrong shapes; the model may then contain some of the weights. The
/// caller must refresh compute copies.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const Stream& stream,
                               const ModelRegistry& registry = model_families());
inline void read_hugging_face_weights(const ModelFolder& folder, LanguageModel& model,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families()) {
  read_hugging_face_weights(folder, model, model.config(), stream, registry);
}

using WeightCallback = std::function<void(Parameter& parameter, const FolderWeight& weight)>;
/// Source of the token table and the head: the folder, or an adapter that replaces both later.
/// Until an adapter replaces them, they are zeros with the model's number of rows.
enum class TokenTables { kRead, kReplaced };
/// Reads weights one by one and passes them to `take`, so that the model's own need no memory.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const WeightCallback& take,
                               const ModelRegistry& registry = model_families(),
                               TokenTables tables = TokenTables::kRead);
inline void read_hugging_face_weights(const ModelFolder& folder, LanguageModel& model,
                                      const WeightCallback& take,
                                      const ModelRegistry& registry = model_families()) {
  read_hugging_face_weights(folder, model, model.config(), take, registry);
}

/// Returns the end of an error message with download instructions, if `name` is not a local folder
/// and may be a model on the Hub, "OWNER/MODEL"; else "".
std::string download_hint(const std::filesystem::path& name);

}  // namespace hybrid_trainer
