#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Special tokens by a model folder's config.json: the text of a JSON object with those of
/// bos_token_id, eos_token_id, pad_token_id, decoder_start_token_id, forced_bos_token_id and
/// forced_eos_token_id that it has, and of an encoder-decoder without generation_config.json also how it
/// writes (WritingKeys); empty where there is no such file.
/// Throws DataError.
std::string token_ids_in(const std::filesystem::path& folder);

/// The tokens that end a text by a folder's generation_config.json and config.json (eos_token_id,
/// one or a list), in increasing order. Throws DataError.
std::vector<std::int32_t> end_token_ids_in(const std::filesystem::path& folder);
/// Ids at which transformers stops: those of generation_config.json if it names any, else of
/// config.json.
std::vector<std::int32_t> generation_end_tokens_in(const std::filesystem::path& folder);

/// How an encoder-decoder's folder says that it writes, by generation_config.json or, where there is none,
/// config.json.
struct WritingKeys {
  std::optional<std::int32_t> start{};          // decoder_start_token_id, of either file
  std::optional<std::int32_t> first{}, last{};  // forced_bos_token_id; forced_eos_token_id
  std::int64_t beams = 1;                       // num_beams
  double length_penalty = 1;
  /// early_stopping: whether as many texts as there are beams are enough, and where not, whether only a
  /// text that could not become better ends the search ("never").
  bool stops_early = false, never_guesses = false;
  std::int64_t unrepeated = 0;       // no_repeat_ngram_size
  std::int64_t least = 0, most = 0;  // min_length and max_length, start included; 0: none is said
};
/// Throws DataError where a value is none of its kind.
WritingKeys writing_keys_in(const std::filesystem::path& folder);

/// A JSON object's text whose eos_token_id has `more` too; the same text where it has them all.
std::string with_end_tokens(const std::string& object, std::span<const std::int32_t> more);

}  // namespace hybrid_trainer
