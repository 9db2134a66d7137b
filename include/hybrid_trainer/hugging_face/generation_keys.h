#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/generation/beam_search.h"
#include "hybrid_trainer/generation/writing_rules.h"

namespace hybrid_trainer {

/// The keys of generation_config.json that change the text that a model writes. src/files/foreign_keys.cpp
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
GenerationKeys read_generation_keys(const std::vector<std::filesystem::path>& folders);

}  // namespace hybrid_trainer
