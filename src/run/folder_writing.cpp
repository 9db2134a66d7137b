#include "hybrid_trainer/run/folder_writing.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/token_ids.h"

namespace hybrid_trainer {
namespace {

/// With a start token.
WritingKeys checked_keys(const ModelConfig& model, const std::filesystem::path& folder) {
  const WritingKeys keys = writing_keys_in(folder);
  if (!keys.start)
    throw DataError(
        concat(folder.string(), ": neither generation_config.json nor config.json has a ",
               "decoder_start_token_id, with which the decoder begins; add the one that ",
               "the model was trained with, such as 2 for facebook/bart-base"));
  for (const auto& id : {keys.start, keys.first, keys.last})
    if (id && *id >= model.vocabulary)
      throw DataError(concat(folder.string(), ": its configuration names the token ", *id,
                             ", and the model has ", model.vocabulary));
  return keys;
}

}  // namespace

std::optional<SourceFormat> source_format_of(const ModelConfig& model,
                                             const std::filesystem::path& folder) {
  if (!model.encoder.reads_tokens()) return {};
  return SourceFormat{.start = *checked_keys(model, folder).start,
                      .longest = model.encoder.source_places()};
}

SourceWriting source_writing_of(const ModelConfig& model, const std::filesystem::path& folder) {
  const WritingKeys keys = checked_keys(model, folder);
  SourceWriting writing{.start = *keys.start,
                        .beams = keys.beams,
                        .search = {.end_tokens = generation_end_tokens_in(folder),
                                   .length_penalty = keys.length_penalty,
                                   .end = keys.never_guesses ? SearchEnd::kCertain
                                          : keys.stops_early ? SearchEnd::kEnough
                                                             : SearchEnd::kGuess},
                        .rules = {.first = keys.first,
                                  .last = keys.last,
                                  .end_tokens = {},
                                  .least = keys.least,
                                  .unrepeated = keys.unrepeated}};
  writing.rules.end_tokens = writing.search.end_tokens;
  writing.set_longest(keys.most > 0 ? std::min(keys.most, model.context) : model.context);
  return writing;
}

}  // namespace hybrid_trainer
