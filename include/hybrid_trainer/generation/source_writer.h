#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/generation/beam_search.h"
#include "hybrid_trainer/generation/writing_rules.h"

namespace hybrid_trainer {

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
