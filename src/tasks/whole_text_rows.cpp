#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/examples/packed_texts.h"
#include "src/run/text_data.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace {

std::string label_text(const TextRow& row, const TextRows& all) {
  if (row.class_index) return all.class_names[static_cast<std::size_t>(*row.class_index)];
  std::vector<std::string> labels;
  const bool are_classes = row.labels.size() == all.class_names.size() && row.labels.size() > 1;
  for (std::size_t i = 0; i < row.labels.size(); ++i) {
    if (!are_classes) labels.push_back(brief(row.labels[i]));
    if (are_classes && row.labels[i] > 0) labels.push_back(all.class_names[i]);
  }
  return join(labels);
}

/// Describes one row: each text as its tokens spell it, and the label.
Findings shown_row(const TextRows& all, std::int64_t line, const Tokenizer& tokenizer) {
  const auto found = std::ranges::find(all.rows, line, &TextRow::line);
  if (found == all.rows.end())
    throw UsageError(
        concat("hybrid rows: --show: got ", line, ", which is not a row that is used"));
  Findings shown;
  boost::json::array texts;
  std::int64_t begin = 0;
  for (const std::int64_t end : found->ends) {
    std::string text;
    for (std::int64_t t = begin; t < end; ++t)
      text += tokenizer.token_bytes(found->tokens[static_cast<std::size_t>(t)]);
    shown.text += concat(texts.empty() ? "" : "\n", "text ", texts.size() + 1, ", ", end - begin,
                         " tokens: ", text);
    const std::vector<std::int32_t> tokens(found->tokens.begin() + begin,
                                           found->tokens.begin() + end);
    texts.push_back(boost::json::object{{"tokens", boost::json::value_from(tokens)}});
    begin = end;
  }
  const std::string label = label_text(*found, all);
  if (!label.empty()) shown.text += "\nlabel: " + label;
  shown.json = {{"line", line}, {"texts", std::move(texts)}, {"label", label}};
  return shown;
}

}  // namespace

Findings whole_text_rows(const RowsRequest& requested, const HybridTrainerConfig& config) {
  const ModelFolder& folder = requested.model;
  const auto tokenizer = folder.tokenizer();
  const std::int64_t length = config.model.vocabulary > 0
                                  ? std::min(requested.longest, config.model.context)
                                  : requested.longest;
  const TextRows all = read_text_rows(
      requested.data, {.task = text_task_of(requested.objective).value(),
                       .tokenizer = *tokenizer,
                       .sequence_length = length,
                       .longest = length,
                       .chat = &folder.chat(),
                       .now = std::time(nullptr),
                       .columns = ColumnNames(requested.columns, "hybrid rows: --columns"),
                       .called = requested.called});
  report_rejected_rows(all, requested.report);
  for (const std::string& note : all.notes) requested.report(note);
  if (requested.shown) return shown_row(all, *requested.shown, *tokenizer);
  std::int64_t texts = 0, tokens = 0;
  for (const TextRow& row : all.rows) {
    texts += std::ssize(row.ends);
    tokens += std::ssize(row.tokens);
  }
  const PackedTexts packed(all.rows, {.sequence_length = length});
  const std::string classes =
      all.class_names.empty() ? "" : concat("; classes ", join(all.class_names));
  return {
      concat(all.rows.size(), " rows of ", texts, " texts, ", units::grouped(tokens), " tokens",
             classes, "; ", all.refused.size(), " lines refused\n", packed.size(), " sequences of ",
             length, " tokens, ", units::fixed(100 * packed.fill(), 1), " % filled"),
      {{"rows", all.rows.size()},
       {"texts", texts},
       {"tokens", tokens},
       {"classes", boost::json::value_from(all.class_names)},
       {"refused", all.refused.size()},
       {"sequences", packed.size()},
       {"fill", packed.fill()}}};
}

}  // namespace hybrid_trainer
