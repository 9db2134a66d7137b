#include "src/fine_tuning/chat_rows.h"

#include "hybrid_trainer/chat/content_form.h"
#include "hybrid_trainer/core/error.h"
#include "src/fine_tuning/generation_prompts.h"

namespace hybrid_trainer {

namespace json = boost::json;

ChatRows::ChatRows(const ExampleFormat& format) : format_(format) {
  form_.content_as_parts = takes_parts_alone(format.chat, format.now);
}

RenderedRow ChatRows::render(const json::object& example, const NormalRow& row) const {
  std::optional<RenderedRow> incomplete;
  std::optional<DataError> refusal;
  for (int variant = 0; variant < 8; ++variant) {
    MessageForm form = form_;
    form.none_beside_calls = (variant & 1) != 0;
    form.arguments_as_text = (variant & 2) != 0;
    form.wraps_calls = (variant & 4) != 0;
    try {
      std::set<std::string> ignored;
      const bool is_first = variant == 0;
      const NormalRow other = is_first ? NormalRow() : normal_row(example, form, ignored);
      const NormalRow& tried = is_first ? row : other;
      FoundAnswers found =
          find_answers(format_, tried, rendered(format_, tried.variables, tried.messages, false));
      if (found.writes_calls) return std::move(found.row);
      if (!incomplete) incomplete = std::move(found.row);
    } catch (const DataError& error) {
      if (!refusal) refusal = error;
    }
    if (!row.has_calls()) break;
  }
  if (incomplete) return *std::move(incomplete);
  throw DataError(*refusal);
}

}  // namespace hybrid_trainer
