#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// Throws UsageError where a command's --beam is not from 1 to 64.
void check_beams(const std::string& command, std::int64_t beams);

/// What `hybrid sample` is asked of an encoder-decoder.
struct SourceSampling {
  std::vector<std::string> sources;
  std::optional<std::int64_t> beams{};   // else as the folder says
  std::optional<std::int64_t> tokens{};  // most to write; else as the folder says
  ControlText control = ControlText::kAsTokens;
  ContextOverflow overflow = ContextOverflow::kTruncate;
  bool json = false;
};

/// Prints what the model makes of each source. Throws DataError where a source is longer than the
/// encoder's context and may not be cut.
void write_of_sources(const WritingModel& model, const SourceSampling& asked, const Stream& stream);

/// Prints each prompt and the likeliest text behind it that a decoder's beam search finds by the keys of its
/// folder.
void continue_by_beams(const WritingModel& model, const SourceSampling& asked,
                       const GenerationSettings& settings, const GenerationKeys& keys,
                       const Stream& stream);

}  // namespace hybrid_trainer
