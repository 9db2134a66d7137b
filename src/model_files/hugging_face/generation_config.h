#pragma once

#include <cstddef>
#include <utility>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/sampling.h"
#include "hybrid_trainer/models/model_config.h"
#include "src/generation/beam_search.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Most tokens of an eos_token_id: each token that is written is compared with all.
inline constexpr std::size_t kMostEndTokens = 1000;

/// Special tokens by a model folder's config.json: the text of a JSON object with those of
/// bos_token_id, eos_token_id, pad_token_id, decoder_start_token_id, forced_bos_token_id and
/// forced_eos_token_id that it has, and without a generation_config.json also the other keys that change
/// the text that is written (GenerationKeys); empty if there is no such file. Throws DataError.
std::string token_ids_in(const ModelFolder& folder);

/// The tokens that end a text by a folder's generation_config.json and config.json (eos_token_id,
/// one or a list), in increasing order. Throws DataError.
std::vector<std::int32_t> end_token_ids_in(const ModelFolder& folder);
/// Ids at which transformers stops: those of generation_config.json if it names any, else of
/// config.json.
std::vector<std::int32_t> generation_end_tokens_in(const ModelFolder& folder);

/// A JSON object's text whose eos_token_id has `more` too; the same text where it has them all.
std::string with_end_tokens(const std::string& object, std::span<const std::int32_t> more);

/// The keys of generation_config.json that change the text that a model writes. src/files/foreign_files.cpp
/// lists them.
struct GenerationKeys {
  std::filesystem::path file{};            // that was read; empty: there is none
  std::optional<std::int32_t> start{};     // decoder_start_token_id
  std::vector<std::int32_t> end_tokens{};  // eos_token_id
  std::int64_t beams = 1;                  // num_beams
  double length_penalty = 1;
  SearchEnd search_end = SearchEnd::kGuess;  // early_stopping
  /// Without the lengths and the tokens that follow from the text or its end.
  WritingRules rules{};
  std::int64_t most = 0, most_new = 0;  // max_length, max_new_tokens; 0: not given
  std::optional<bool> draws{};          // do_sample
  std::optional<double> temperature{}, top_p{}, min_p{};
  std::optional<std::int64_t> top_k{};

  /// Keys of Whisper models.
  struct Speech {
    std::optional<bool> is_multilingual{};
    std::vector<std::pair<std::string, std::int32_t>> languages{};  // lang_to_id, by id
    std::string language{}, task{};                                 // as they are written there
    bool timestamps = false;                                        // return_timestamps
    std::optional<std::int32_t> latest_first_time{};                // max_initial_timestamp_index
    /// forced_decoder_ids: the tokens from the second one on; none if the model chooses.
    std::vector<std::optional<std::int32_t>> forced{};
  } speech{};

  /// "bad_words_ids: got …, want …": keys that nothing here honors.
  std::vector<std::string> problems{};

  /// Most tokens of a text with a beginning of this length, which it includes.
  std::int64_t longest(std::int64_t begun, std::int64_t context) const;
  /// Throws DataError, which names them, if there are problems.
  void require_honored() const;
};

/// Reads generation_config.json of the first folder that has one, else config.json of the first that has
/// that, as transformers does. Start and end tokens, and tokens that are forced if neither language nor task
/// is given, may be in either. A GGUF file has none. Throws DataError if a value is not of its kind.
GenerationKeys read_generation_keys(const std::vector<ModelFolder>& folders);

/// Throws DataError where the model's table has no rows for all tokens. Null fits.
void check_tokenizer_fits(const Tokenizer* tokenizer, const ModelConfig& model);
/// Writes generation_config.json and, of a BPE, the tokenizer's files, which may have another one.
/// `token_ids`: see src/model_files/hugging_face/generation_config.h.
void write_token_files(const Tokenizer* tokenizer, const ModelConfig& model,
                       const std::string& token_ids, const std::string& folder);

}  // namespace hybrid_trainer
