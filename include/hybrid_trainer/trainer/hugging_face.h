#pragma once

#include <filesystem>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/gpt2.h"

namespace hybrid_trainer {

/// A model folder in the layout of Hugging Face transformers' GPT2LMHeadModel. One table of names,
/// in hugging_face.cpp, serves both directions.

/// Writes config.json, generation_config.json and model.safetensors (names with "transformer.",
/// Conv1D matrices as (inputs, outputs), no padding rows); and the tokenizer's files where there is
/// one and it is a BPE. The folder appears whole or not at all. Throws CannotCreate where `folder`
/// exists and is not empty or cannot be made, DataError where the tokenizer does not belong to the
/// model, IoError.
void export_hugging_face(Gpt2& model, const Tokenizer* tokenizer,
                         const std::filesystem::path& folder, const Stream& stream);

/// The model of a folder's config.json, with the dropout given here instead of the file's. Throws
/// MissingInput, or DataError that names every key that is missing or asks for a computation other
/// than this GPT-2's.
ModelConfig read_hugging_face_model_config(const std::filesystem::path& folder, double dropout);

/// Takes all weights from a folder's model.safetensors or, where there is none, from the shards
/// that model.safetensors.index.json names; names with or without "transformer.". Masks are
/// ignored, an "lm_head.weight" must equal the token table. Throws MissingInput, or DataError that
/// names what is missing, unknown or of another shape; the model may then hold some of the weights.
/// Working copies are the caller's to refresh.
void read_hugging_face_weights(const std::filesystem::path& folder, Gpt2& model,
                               const Stream& stream);

}  // namespace hybrid_trainer
