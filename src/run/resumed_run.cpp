#include "src/run/resumed_run.h"

#include <algorithm>

#include "hybrid_trainer/hugging_face/token_ids.h"
#include "src/run/run_tokenizer.h"
#include "src/trainer/config_changes.h"

namespace hybrid_trainer {
namespace {

/// Takes the base's ids of special tokens, and adds the end tokens that it has not.
void add_token_ids(RunData& data) {
  const std::string ids = token_ids_in(data.base);
  if (ids.empty()) return;
  const auto known = generation_end_tokens_in(data.base);
  std::erase_if(data.end_tokens,
                [&](std::int32_t id) { return std::ranges::find(known, id) != known.end(); });
  data.token_ids = with_end_tokens(ids, data.end_tokens);
}

}  // namespace

HybridTrainerConfig check_same_run(const RunPaths& run, const HybridTrainerConfig& now,
                                   const TrainingRunSettings& settings,
                                   const TrainingSource& source, const Tokenizer* tokenizer) {
  HybridTrainerConfig before = config_of_run(run);
  check_changes(config_changes(before, now));
  const RunData data = data_of_run(run);
  check_same_tokenizer(tokenizer_of_run(run).get(), tokenizer, settings.data);
  check_same_data(data, source.described());
  return before;
}

RunData run_data(const RunPaths& run, const TrainingRunSettings& settings,
                 const TrainingSource& source, const Tokenizer* tokenizer, bool resumes) {
  RunData data = source.described();
  data.adapter = settings.adapter.value_or(resumes ? data_of_run(run).adapter : "");
  if (settings.init_from) {
    data.base = *settings.init_from;
    if (!begins_with_another_tokenizer(settings.init_from, tokenizer)) add_token_ids(data);
  } else if (resumes) {
    const RunData before = data_of_run(run);
    data.base = before.base;
    data.token_ids = before.token_ids;
  }
  return data;
}

}  // namespace hybrid_trainer
