#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/packed_rows.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/speech/clips.h"
#include "src/run/text_data.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace {

struct RowCounts {
  std::int64_t tokens = 0, targets = 0, cut_rows = 0, left_out = 0, answers_left_out = 0;
  std::int64_t sources = 0, cut_sources = 0;  // tokens of sources, and truncated sources
};

RowCounts counts_of(const std::vector<ExampleRow>& rows) {
  RowCounts counts;
  for (const ExampleRow& row : rows) {
    counts.tokens += std::ssize(row.tokens);
    counts.targets += row.targets();
    counts.sources += std::ssize(row.source);
    counts.cut_sources += row.source_left_out > 0 ? 1 : 0;
    counts.cut_rows += row.left_out > 0 ? 1 : 0;
    counts.left_out += row.left_out;
    counts.answers_left_out += row.answers_left_out;
  }
  return counts;
}

struct RowPart {
  std::string text;
  bool learned = false;
  const char* answer = nullptr;  // "chosen" or "rejected" in a preference pair
};

/// Splits a row into parts with and without loss.
std::vector<RowPart> parts_of(const ExampleRow& row, const Tokenizer& tokenizer) {
  std::vector<RowPart> parts;
  const auto middle = static_cast<std::size_t>(row.rejected_at);
  if (!row.source.empty()) parts.push_back({tokenizer.decode(row.source) + "\n"});
  for (std::size_t begin = 0, end = 0; begin < row.tokens.size(); begin = end) {
    while (end < row.tokens.size() && row.is_target[end] == row.is_target[begin] &&
           (end == begin || end != middle))
      ++end;
    const std::span<const std::int32_t> tokens(row.tokens);
    parts.push_back({tokenizer.decode(tokens.subspan(begin, end - begin)), row.is_target[begin]});
    if (middle > 0) parts.back().answer = begin < middle ? "chosen" : "rejected";
  }
  return parts;
}

[[noreturn]] void refuse_line(const ExampleRows& examples, std::int64_t line) {
  const std::string place = examples.place(0, line, false);
  std::int64_t last = 0;
  for (const auto& refused : examples.refused) {
    last = std::max(last, refused.line);
    if (refused.line == line) throw DataError(concat(place, " is refused: ", refused.reason));
  }
  for (const ExampleRow& row : examples.rows) last = std::max(last, row.line);
  for (const PreferencePair& pair : examples.pairs) last = std::max(last, pair.chosen.line);
  if (line < last) throw DataError(concat(place, " is empty"));
  throw DataError(concat(place, " does not exist; the last line with an example is ", last));
}

std::string text_of(const std::vector<RowPart>& parts) {
  std::string text;
  const char* answer = nullptr;
  for (const RowPart& part : parts) {
    if (part.answer != answer) text += concat(answer ? "\n" : "", part.answer, ": ");
    answer = part.answer;
    text += part.learned ? concat("⟦", part.text, "⟧") : part.text;
  }
  return text;
}

boost::json::array parts_as_json(const std::vector<RowPart>& parts) {
  boost::json::array texts;
  for (const RowPart& part : parts) {
    boost::json::object one{{"text", part.text}, {"learned", part.learned}};
    if (part.answer != nullptr) one["answer"] = part.answer;
    texts.push_back(std::move(one));
  }
  return texts;
}

Findings shown_row(const ExampleRows& examples, std::int64_t line, const Tokenizer& tokenizer) {
  if (examples.files.size() > 1)
    throw UsageError("hybrid rows: --show needs a single file; give a file instead of the folder");
  const auto row = std::ranges::find(examples.rows, line, &ExampleRow::line);
  const auto pair = std::ranges::find(examples.pairs, line,
                                      [](const PreferencePair& one) { return one.chosen.line; });
  const bool is_row = row != examples.rows.end();
  if (!is_row && pair == examples.pairs.end()) refuse_line(examples, line);
  const std::vector<RowPart> parts = parts_of(is_row ? *row : pair->chosen, tokenizer);
  Findings found{text_of(parts), {{"line", line}, {"parts", parts_as_json(parts)}}};
  if (is_row) return found;
  const std::vector<RowPart> rejected = parts_of(pair->rejected, tokenizer);
  found.text += "\nrejected:\n" + text_of(rejected);
  found.json["rejected"] = parts_as_json(rejected);
  return found;
}

boost::json::array files_as_json(const ExampleRows& examples, const std::string& called) {
  boost::json::array files;
  for (std::size_t i = 0; i < examples.files.size(); ++i) {
    const RowFile& file = examples.files[i];
    boost::json::object shapes;
    for (const auto& [shape, count] : examples.shapes[i]) shapes[name_of(shape)] = count;
    files.push_back({{"file", called.empty() ? file.path.string() : called},
                     {"container", name_of(file.form.container)},
                     {"shapes", shapes}});
  }
  return files;
}

/// Sequences that the rows fill; 0 without rows.
struct Packing {
  std::int64_t sequences = 0;
  double fill = 0;  // 0: rows with clips or sources, one per sequence
};

Packing packed(const std::vector<ExampleRow>& rows, std::int64_t length) {
  if (rows.empty()) return {};
  const bool has_sources = rows.front().clip || !rows.front().source.empty();
  if (has_sources) return {std::ssize(rows), 0};  // padded to the longest
  const PackedRows sequences(rows, {.sequence_length = length});
  return {sequences.size(), sequences.fill()};
}

boost::json::object json_of(const ExampleRows& examples, const RowCounts& counts,
                            const Packing& packing, const std::string& called) {
  boost::json::array refused;
  for (const auto& [line, reason, file] : examples.refused) {
    boost::json::object one{{"line", line}, {"reason", reason}};
    if (examples.files.size() > 1) one["file"] = examples.files[file].path.string();
    refused.push_back(std::move(one));
  }
  boost::json::object line{{"files", files_as_json(examples, called)},
                           {"rows", examples.rows.size()},
                           {"preferences", examples.pairs.size()},
                           {"tokens", counts.tokens},
                           {"targets", counts.targets},
                           {"cut_rows", counts.cut_rows},
                           {"tokens_left_out", counts.left_out},
                           {"answers_left_out", counts.answers_left_out},
                           {"sequences", packing.sequences},
                           {"fill", packing.fill},
                           {"refused", refused}};
  if (counts.sources > 0) line["source_tokens"] = counts.sources;
  if (counts.sources > 0) line["cut_sources"] = counts.cut_sources;
  return line;
}

std::string text_of(const ExampleRows& examples, const RowCounts& counts, const Packing& packing,
                    std::int64_t longest) {
  std::string text = concat(examples.rows.size(), " rows of ", units::grouped(counts.tokens),
                            " tokens, ", units::grouped(counts.targets), " of them targets; ",
                            examples.refused.size(), " lines refused");
  if (!examples.pairs.empty())
    text += concat("\n", examples.pairs.size(),
                   " preferences (chosen and rejected), which finetune does not train on");
  if (counts.sources > 0)
    text += concat("\ntheir sources have ", units::grouped(counts.sources), " tokens");
  if (counts.cut_sources > 0)
    text += concat("; ", counts.cut_sources, " are truncated to the encoder's context");
  if (counts.cut_rows > 0)
    text += concat("\n", counts.cut_rows, " rows are truncated to ", longest + 1, " tokens, ",
                   units::grouped(counts.left_out), " tokens dropped");
  if (examples.rows.empty() || packing.fill == 0) return text;
  return concat(text, "\n", packing.sequences, " sequences of ", longest, " tokens, ",
                units::fixed(100 * packing.fill, 1), " % filled");
}

void report_format(const ExampleRows& examples, const std::string& name,
                   const MessageHandler& report) {
  report(concat(name, ": ", examples.form()));
  for (const RowFile& file : examples.files) {
    if (file.form.container != RowContainer::kJsonArray) continue;
    report(concat(examples.files.size() > 1 ? file.path.string() : name,
                  file.form.array_key.empty() ? " is a JSON array"
                                              : " has a JSON array in " + file.form.array_key,
                  ", whose elements count as lines"));
  }
  if (!examples.pairs.empty())
    report("to train on pairs of answers, use `hybrid finetune --objective dpo` or orpo");
}

ModelConfig model_in(const ModelFolder& folder) {
  if (!std::filesystem::exists(folder.path() / "config.json")) return {};
  return read_hugging_face_model_config(folder, 0);
}

}  // namespace

void report_rejected_rows(const ReadRows& examples, const MessageHandler& report) {
  constexpr std::size_t kShown = 10;
  const auto& refused = examples.refused;
  for (std::size_t i = 0; i < std::min(kShown, refused.size()); ++i)
    report(concat(examples.place(refused[i].file, refused[i].line, false),
                  " is refused: ", refused[i].reason));
  if (refused.size() > kShown) report(concat("and ", refused.size() - kShown, " more"));
}

Findings language_rows(const RowsRequest& requested, const HybridTrainerConfig& config) {
  if (requested.is_configured)
    throw UsageError(
        "hybrid rows: --preset, --config and --set describe models that do not read text; for "
        "text, give only --model FOLDER, whose tokenizer encodes the rows");
  if (text_task_of(requested.objective)) return whole_text_rows(requested, config);
  const ModelFolder& folder = requested.model;
  const ChatFiles& chat = folder.chat();
  const auto tokenizer = folder.tokenizer();
  ExampleFiles of_model;
  of_model.set_encoder(model_in(folder), {folder});
  const ExampleFormat format{.tokenizer = *tokenizer,
                             .chat = chat,
                             .longest = requested.longest + 1,
                             .now = std::time(nullptr),
                             .control = control_text_of(requested.control_tokens),
                             .columns = ColumnNames(requested.columns, "hybrid rows: --columns"),
                             .called = requested.called,
                             .pairs = requested.objective != "next_token",
                             .source = of_model.source};
  const double seconds = of_model.max_clip_seconds;
  const ExampleRows examples =
      seconds > 0 ? read_clip_examples(requested.data, format, seconds,
                                       read_speech_tokens(*tokenizer, of_model.generation))
                  : read_example_rows(requested.data, format);
  const auto reads_date = [](const auto& source) { return source && source->reads_date(); };
  if (reads_date(chat.chat_template) || reads_date(chat.tool_template))
    requested.report("the chat template puts today's date into the rows");
  const std::string name = requested.called.empty() ? requested.data : requested.called;
  report_format(examples, name, requested.report);
  report_rejected_rows(examples, requested.report);
  for (const std::string& note : examples.notes()) requested.report(note);
  const std::string others = unread_files_note(requested.data, {RowSplit::kTrain});
  if (!others.empty()) requested.report(concat(requested.data, ": ", others));
  if (requested.shown) return shown_row(examples, *requested.shown, *tokenizer);
  const std::string problem = examples.mostly_rejected_warning();
  if (examples.rows.empty() && examples.pairs.empty()) throw DataError(concat(name, ": ", problem));
  if (!problem.empty()) requested.report("hybrid finetune would reject this data: " + problem);
  const RowCounts counts = counts_of(examples.rows);
  const Packing packing = packed(examples.rows, requested.longest);
  return {text_of(examples, counts, packing, requested.longest),
          json_of(examples, counts, packing, requested.called)};
}

}  // namespace hybrid_trainer
