#pragma once

#include <cstddef>
#include <utility>

#include "src/generation/beam_search.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Maximum number of tokens in eos_token_id. Each generated token is compared with all of them.
inline constexpr std::size_t kMaxEndTokens = 1000;

/// Returns special tokens from a model folder's config.json as the text of a JSON object:
/// bos_token_id, eos_token_id, pad_token_id, decoder_start_token_id, forced_bos_token_id and
/// forced_eos_token_id. If there is no generation_config.json, also returns the other keys that
/// affect generation (GenerationKeys). Returns "" if there is no config.json. Throws DataError.
std::string token_ids_in(const ModelFolder& folder);

/// Returns the end tokens of generation_config.json and config.json, sorted. Throws DataError.
std::vector<std::int32_t> end_token_ids_in(const ModelFolder& folder);
/// Returns the end tokens that transformers uses: generation_config.json's or, without them,
/// config.json's.
std::vector<std::int32_t> generation_end_tokens_in(const ModelFolder& folder);

/// Adds the tokens of `more` to eos_token_id in a JSON object, unless it has all of them.
std::string with_end_tokens(const std::string& object, std::span<const std::int32_t> more);

/// Keys of generation_config.json that affect generation. src/files/foreign_files.cpp lists them.
struct GenerationKeys {
  fs::path file{};                         // the file that was read; empty if there is none
  std::optional<std::int32_t> start{};     // decoder_start_token_id
  std::vector<std::int32_t> end_tokens{};  // eos_token_id
  std::int64_t beams = 1;                  // num_beams
  double length_penalty = 1;
  EarlyStopping search_end = EarlyStopping::kGuess;  // early_stopping
  /// Rules for the generated tokens, except lengths, and except tokens that depend on the text or
  /// its end.
  TokenConstraints rules{};
  std::int64_t most = 0, max_new_tokens = 0;  // max_length and max_new_tokens; 0 if not given
  std::optional<bool> draws{};                // do_sample
  std::optional<double> temperature{}, top_p{}, min_p{};
  std::optional<std::int64_t> top_k{};

  /// Keys of Whisper models.
  struct Speech {
    std::optional<bool> is_multilingual{};
    std::vector<std::pair<std::string, std::int32_t>> languages{};  // lang_to_id, by id
    std::string language{}, task{};                                 // in the file's notation
    bool timestamps = false;                                        // return_timestamps
    std::optional<std::int32_t> latest_first_time{};                // max_initial_timestamp_index
    /// forced_decoder_ids: the tokens of a text from the second token on; nullopt if the model
    /// chooses the token.
    std::vector<std::optional<std::int32_t>> forced{};
  } speech{};

  /// "bad_words_ids: got …, want …": unsupported keys.
  std::vector<std::string> problems{};

  /// Returns the maximum length of a text, including the `begun` tokens with which it begins.
  std::int64_t longest(std::int64_t begun, std::int64_t context) const;
  void require_honored() const;
};

/// Reads generation_config.json of the first folder that has one, as transformers does. If none has
/// one, reads config.json of the first folder that has one. Start and end tokens, and forced tokens
/// used without language and task, may be in either file. If there is neither file, reads the
/// sampling settings of the first GGUF file. Throws DataError for values of the wrong type.
GenerationKeys read_generation_keys(const std::vector<ModelFolder>& folders);

/// Throws DataError if the tokenizer has more tokens than the model's table. Null is accepted.
void check_tokenizer_fits(const Tokenizer* tokenizer, const ModelConfig& model);
/// Writes generation_config.json and, for a BPE, the files of the tokenizer, which may replace
/// generation_config.json. See token_ids_in for `token_ids`.
void write_token_files(const Tokenizer* tokenizer, const ModelConfig& model,
                       const std::string& token_ids, const std::string& folder);

}  // namespace hybrid_trainer
