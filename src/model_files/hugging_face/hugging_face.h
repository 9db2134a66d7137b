#pragma once

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Model folders in Hugging Face transformers' format; families define names and layouts.

/// Writes config.json, generation_config.json, model.safetensors (without padding rows and
/// adapters), and the tokenizer's files if it is a BPE. Tensors are rounded to `dtype`, f32 or
/// bf16. Quantized weights are written as stored, with the keys of bitsandbytes. The other weights
/// of such a model are bf16 if this does not round any vector, otherwise f32. Special tokens have
/// the ids in `token_ids` or, if it has none, the id of the end-of-text token. Copies from
/// `origin`, the model's original folder, the parts that this program's model does not have, and
/// from `base_config` all values that the model does not change. The folder is created atomically;
/// `finish` may write further files to it before it appears at its path. Throws CannotCreate if `folder` is not empty or cannot be created, DataError if the tokenizer
/// does not fit the model, and IoError.
void export_hugging_face(Network& network, const ModelConfig& model, const Tokenizer* tokenizer,
                         const fs::path& folder, const Stream& stream,
                         const ModelRegistry& registry = model_families(),
                         DType dtype = DType::kF32, const std::string& token_ids = "",
                         const ModelFolder& origin = {}, const fs::path& base_config = {},
                         const std::function<void(const fs::path&)>& finish = {});

/// Throws DataError if a Hugging Face folder cannot store the model, for example its family.
void check_hugging_face_export(const ModelConfig& model,
                               const ModelRegistry& registry = model_families());

/// Returns bf16 if all tensors of a folder except vectors of state-space mixers are bf16, otherwise
/// f32. Throws MissingInput, DataError.
DType dtype_of_hugging_face_weights(const ModelFolder& folder);

/// Reads the model configuration in config.json, with the given dropout. Throws MissingInput.
/// Throws DataError naming an unknown model_type, or all missing and unsupported keys.
ModelConfig read_hugging_face_model_config(const ModelFolder& folder, double dropout,
                                           const ModelRegistry& registry = model_families());

/// Reads all weights of a folder; names may omit the family's prefix. Ignores masks; an
/// "lm_head.weight" must equal a tied token table. Throws MissingInput. Throws DataError, which
/// names missing or unknown tensors and wrong shapes; the model may then contain some of the
/// weights. The caller must refresh compute copies.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const Stream& stream,
                               const ModelRegistry& registry = model_families());

using WeightCallback = std::function<void(Parameter& parameter, const FolderWeight& weight)>;
/// Source of the token table and the head: the folder, or an adapter that replaces both later.
/// Before an adapter replaces them, they are zeros with the number of rows of the model.
enum class TokenTables { kRead, kReplaced };
/// Passes the folder's weights to `take` one by one. The network's own weights need not be
/// allocated.
void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const WeightCallback& take,
                               const ModelRegistry& registry = model_families(),
                               TokenTables tables = TokenTables::kRead);

/// Returns download instructions if `name` may be a model on the Hub, "OWNER/MODEL", or else "".
std::string download_hint(const fs::path& name);

}  // namespace hybrid_trainer
