#pragma once

#include <functional>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Changes the scores of the tokens that may follow a text, its beginning included; −∞ forbids one.
using ScoreRule = std::function<void(std::span<float> scores, std::span<const std::int32_t> text)>;

/// When a search with ended texts enough goes on.
enum class SearchEnd {
  kGuess,    // while a text of now could still beat the worst of them if it ended here
  kEnough,   // never
  kCertain,  // while one could beat it at the largest length
};

struct BeamSettings {
  std::int64_t longest =
      0;  // tokens of a text, its beginning included; at most the model's context
  std::vector<std::int32_t> end_tokens{};
  double length_penalty =
      1;  // a text of n tokens has its log-likelihood divided by n to this power
  SearchEnd end = SearchEnd::kGuess;
};

/// Writes the text that a model finds the likeliest, or nearly: of the texts that go on, it keeps so many
/// beams. It decides as transformers' generate does, without sampling. With one beam it takes the likeliest
/// token each time.
class BeamSearch {
 public:
  /// Memory for texts of `room.tokens` and one for each of `room.texts` beams. All of them follow the source
  /// that the model has encoded when it writes. Model and stream must outlive this. Throws OutOfMemory.
  BeamSearch(LanguageModel& model, TextRoom room, DType dtype, const Stream& stream);
  ~BeamSearch();
  BeamSearch(const BeamSearch&) = delete;
  BeamSearch& operator=(const BeamSearch&) = delete;

  /// The tokens behind `beginning`, which is not empty; the last one may end the text. `rule` sees logits
  /// with one beam, else log-likelihoods. Throws Error where the model's state cannot branch.
  std::vector<std::int32_t> write(std::span<const std::int32_t> beginning,
                                  const BeamSettings& settings, const ScoreRule& rule);
  /// The logits behind `beginning`, for what is asked of a model beside its text.
  std::span<const float> logits(std::span<const std::int32_t> beginning) {
    decoder_.begin(0, beginning);
    return decoder_.logits(0);
  }

 private:
  std::vector<std::int32_t> write_greedily(std::span<const std::int32_t> beginning,
                                           const BeamSettings& settings, const ScoreRule& rule);
  LanguageModel& model_;
  BatchDecoder decoder_;
};

/// How an encoder-decoder writes.
struct SourceWriting {
  std::int32_t start = 0;  // the token with which all that is written begins
  std::int64_t beams = 1;
  BeamSettings search{};
  WritingRules rules{};

  /// Texts have at most so many tokens, their start included.
  void set_longest(std::int64_t tokens) { search.longest = rules.longest = tokens; }
};

/// Writes what a model makes of sources that are tokens.
class SourceWriter {
 public:
  /// Takes memory for the beams. Model and stream must outlive this. Throws OutOfMemory.
  SourceWriter(LanguageModel& model, const SourceWriting& writing, DType dtype,
               const Stream& stream);
  /// The tokens behind the start, with the one that ends them. The source is not empty, and no longer than
  /// the encoder's context (else throws ShapeMismatch).
  std::vector<std::int32_t> write(std::span<const std::int32_t> source);

 private:
  LanguageModel& model_;
  SourceWriting writing_;
  Pass pass_;
  const Stream& stream_;
  BeamSearch search_;
};

}  // namespace hybrid_trainer
