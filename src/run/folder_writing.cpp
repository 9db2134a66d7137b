#include "hybrid_trainer/run/folder_writing.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Throws DataError if a start token is missing, or a token is none of the model's.
void check_keys(const ModelConfig& model, const GenerationKeys& keys) {
  const std::string file = keys.file.empty() ? "the model's folder" : keys.file.string();
  if (!keys.start)
    throw DataError(
        concat(file, ": neither generation_config.json nor config.json has a ",
               "decoder_start_token_id, with which the decoder begins; add the one that ",
               "the model was trained with, such as 2 for facebook/bart-base"));
  for (const auto& id : {keys.start, keys.rules.first, keys.rules.last})
    if (id && *id >= model.vocabulary)
      throw DataError(concat(file, ": the configuration names the token ", *id,
                             ", and the model has ", model.vocabulary));
}

}  // namespace

std::optional<SourceFormat> source_format_of(const ModelConfig& model, const GenerationKeys& keys) {
  if (!model.encoder.reads_tokens()) return {};
  check_keys(model, keys);
  return SourceFormat{.start = *keys.start, .longest = model.encoder.source_places()};
}

SourceWriting source_writing_of(const ModelConfig& model, const GenerationKeys& keys) {
  check_keys(model, keys);
  SourceWriting writing{.start = *keys.start,
                        .beams = keys.beams,
                        .search = {.end_tokens = keys.end_tokens,
                                   .length_penalty = keys.length_penalty,
                                   .end = keys.search_end},
                        .rules = keys.rules};
  writing.rules.end_tokens = keys.end_tokens;
  writing.set_longest(keys.longest(1, model.context));
  return writing;
}

}  // namespace hybrid_trainer
