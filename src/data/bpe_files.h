#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bpe_model.h"

namespace hybrid_trainer {

/// GPT-2's `vocab.json` and `merges.txt`. A token "<|endoftext|>" is the end-of-text token; a
/// `tokenizer_config.json` beside them says whether a prefix space is added. Throws DataError.
std::unique_ptr<Tokenizer> load_gpt2_files(const std::filesystem::path& vocab,
                                           const std::filesystem::path& merges);

/// Hugging Face's `tokenizer.json` of a byte-level BPE, and the `tokenizer_config.json` beside it;
/// `object` is the content of `file`. Throws DataError, which also names anything unsupported that
/// would change the ids.
std::unique_ptr<Tokenizer> load_hugging_face_file(const boost::json::object& object,
                                                  const std::filesystem::path& file);

/// Writes `tokenizer.json`, `vocab.json` and `merges.txt` as Hugging Face reads them. `tokens` are
/// the model's.
void save_bpe_files(const BpeModel& model, const std::vector<std::string>& tokens,
                    const std::filesystem::path& folder);

}  // namespace hybrid_trainer
