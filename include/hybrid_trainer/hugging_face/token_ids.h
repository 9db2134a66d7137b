#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Most tokens of an eos_token_id: each token that is written is compared with all.
inline constexpr std::size_t kMostEndTokens = 1000;

/// Special tokens by a model folder's config.json: the text of a JSON object with those of
/// bos_token_id, eos_token_id, pad_token_id, decoder_start_token_id, forced_bos_token_id and
/// forced_eos_token_id that it has, and without a generation_config.json also the other keys that change
/// the text that is written (generation_keys.h); empty if there is no such file. Throws DataError.
std::string token_ids_in(const std::filesystem::path& folder);

/// The tokens that end a text by a folder's generation_config.json and config.json (eos_token_id,
/// one or a list), in increasing order. Throws DataError.
std::vector<std::int32_t> end_token_ids_in(const std::filesystem::path& folder);
/// Ids at which transformers stops: those of generation_config.json if it names any, else of
/// config.json.
std::vector<std::int32_t> generation_end_tokens_in(const std::filesystem::path& folder);

/// A JSON object's text whose eos_token_id has `more` too; the same text where it has them all.
std::string with_end_tokens(const std::string& object, std::span<const std::int32_t> more);

}  // namespace hybrid_trainer
