#pragma once

#include <functional>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Function that changes the scores of a text's next token; −∞ forbids a token. `text` includes the
/// prefix.
using ScoreRule = std::function<void(std::span<float> scores, std::span<const std::int32_t> text)>;

/// Condition for continuing a search when there are enough finished texts.
enum class EarlyStopping {
  kGuess,    // a running text, if it ended now, is better than the worst finished one
  kEnough,   // never
  kCertain,  // a running text can become better than the worst finished one
};

struct BeamSettings {
  std::int64_t longest = 0;  // maximum length of a text including its prefix; at most the context
  std::vector<std::int32_t> end_tokens{};
  double length_penalty = 1;  // log-likelihoods are divided by (length of the text)^length_penalty
  EarlyStopping end = EarlyStopping::kGuess;
};

/// Searches for the most likely text with several beams. Equivalent to transformers' generate
/// without sampling. With one beam, decodes greedily.
class BeamSearch {
 public:
  /// Allocates memory for `room.texts` beams of `room.tokens` tokens. All beams read the source
  /// that is encoded in the model when `write` is called. `model` and `stream` must outlive this
  /// object. Throws OutOfMemory.
  BeamSearch(LanguageModel& model, DecodeCapacity room, DType dtype, const Stream& stream);
  ~BeamSearch();
  BeamSearch(const BeamSearch&) = delete;
  BeamSearch& operator=(const BeamSearch&) = delete;

  /// Returns the tokens after `prefix`, which must not be empty. The last token may be an end
  /// token. `rule` receives logits if there is one beam, otherwise log-likelihoods. Throws Error if
  /// the model's state cannot branch.
  std::vector<std::int32_t> write(std::span<const std::int32_t> prefix,
                                  const BeamSettings& settings, const ScoreRule& rule);
  /// Returns the logits after `prefix`, for uses other than text generation.
  std::span<const float> logits(std::span<const std::int32_t> prefix) {
    decoder_.begin(0, prefix);
    return decoder_.logits(0);
  }

 private:
  std::vector<std::int32_t> greedy_search(std::span<const std::int32_t> prefix,
                                          const BeamSettings& settings, const ScoreRule& rule);
  LanguageModel& model_;
  BatchDecoder decoder_;
};

/// Generation settings of an encoder-decoder.
struct Seq2SeqSettings {
  std::int32_t start = 0;  // the first token of every text
  std::int64_t beams = 1;
  BeamSettings search{};
  TokenConstraints rules{};

  void set_longest(std::int64_t tokens) { search.longest = rules.longest = tokens; }
};

class Seq2SeqGenerator {
 public:
  /// Allocates memory for the beams. Model and stream must outlive this. Throws OutOfMemory.
  Seq2SeqGenerator(LanguageModel& model, const Seq2SeqSettings& writing, DType dtype,
                   const Stream& stream);
  /// Returns the tokens after the start, including an end token. The source must not be empty.
  /// Throws ShapeMismatch if it exceeds the encoder's context.
  std::vector<std::int32_t> write(std::span<const std::int32_t> source);

 private:
  LanguageModel& model_;
  Seq2SeqSettings writing_;
  Pass pass_;
  const Stream& stream_;
  BeamSearch search_;
};

}  // namespace hybrid_trainer
