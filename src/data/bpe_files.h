#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <memory>

#include "src/data/bpe_model.h"

namespace hybrid_trainer {

/// What was trained, with the `tokenizer.json`, `vocab.json` and `merges.txt` that it is saved as.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model);

/// GPT-2's `vocab.json` and `merges.txt`. A token "<|endoftext|>" is special. Throws DataError.
std::unique_ptr<Tokenizer> load_gpt2_files(const std::filesystem::path& vocab,
                                           const std::filesystem::path& merges);

/// The files in a tokenizer's folder that belong to it. Throws IoError.
TokenizerFiles read_companions(const std::filesystem::path& folder);
/// Hugging Face's `tokenizer.json` of a BPE. Throws DataError.
std::unique_ptr<Tokenizer> load_hugging_face_file(const boost::json::object& object,
                                                  const std::filesystem::path& file);

}  // namespace hybrid_trainer
