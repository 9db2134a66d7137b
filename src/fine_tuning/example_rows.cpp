#include "hybrid_trainer/fine_tuning/example_rows.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/progress.h"
#include "hybrid_trainer/files/python_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "src/fine_tuning/preference_rows.h"
#include "src/fine_tuning/row_texts.h"
#include "src/fine_tuning/row_tokens.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 30;
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

ExampleRow row_of_line(std::string_view text, const ExampleFormat& format, RowMaker& maker) {
  WideIntegers wide;
  const auto value = parse_noted_json(text, "the line", kLongestLine, wide);
  if (!value.is_object()) throw DataError("it is no JSON object");
  if (format.pairs) return preference_row(value.get_object(), wide, format, maker);
  return maker.make(value.get_object(), wide);
}

/// A file that is something else is not read to its end.
void check_is_data(const ExampleRows& examples, const std::filesystem::path& path) {
  constexpr std::size_t kManyRefused = 100'000;
  if (examples.refused.size() < kManyRefused || examples.refused.size() < examples.rows.size())
    return;
  throw DataError(concat(path.string(), ": ", examples.refused.size(), " of its first ",
                         examples.rows.size() + examples.refused.size(),
                         " lines are refused; line ", examples.refused.front().line, ": ",
                         examples.refused.front().reason));
}

std::string told_of_unwritten(const std::map<std::string, std::int64_t>& unwritten) {
  std::string keys;
  for (const auto& [key, count] : unwritten)
    keys +=
        concat(keys.empty() ? "\"" : ", \"", key, "\" (", count, count == 1 ? " time)" : " times)");
  if (keys.empty()) return "";
  return concat("the chat template leaves out what the examples have as ", keys,
                "; nothing is learned of it");
}

std::string told_of_loose_ends(const std::map<std::string, std::int64_t>& loose_ends) {
  if (loose_ends.empty()) return "";
  std::int64_t chats = 0;
  for (const auto& [ending, count] : loose_ends) chats += count;
  const auto most =
      std::ranges::max_element(loose_ends, {}, [](const auto& entry) { return entry.second; });
  const bool is_blank = most->first.find_first_not_of(" \t\r\n") == std::string::npos;
  return concat(chats, chats == 1 ? " chat ends" : " chats end", " with ",
                is_blank ? "the answer itself and no token behind it"
                         : concat(json::serialize(json::value(most->first.substr(0, 60))),
                                  ", which is no special token of this tokenizer"),
                ", so generation will not stop there; let the chat template write eos_token behind "
                "what the assistant says",
                is_blank ? "" : ", or stop at that text with hybrid sample --stop");
}

}  // namespace

std::int64_t ExampleRow::targets() const { return std::count(learnt.begin(), learnt.end(), true); }

std::vector<std::string> ExampleRows::notes() const {
  std::vector<std::string> notes;
  std::int64_t answers = 0, of_rows = 0;
  for (const ExampleRow& row : rows) {
    answers += row.answers_left_out;
    of_rows += row.answers_left_out > 0 ? 1 : 0;
  }
  if (answers > 0)
    notes.push_back(concat(answers, " answers in ", of_rows, " rows are left out: the chat ",
                           "template does not write them, or writes them where they cannot be ",
                           "told apart"));
  std::string keys;
  for (const std::string& key : findings.unused_keys)
    keys += (keys.empty() ? "\"" : ", \"") + key + '"';
  if (!keys.empty())
    notes.push_back(concat("these keys of the examples have no effect here: ", keys));
  for (const std::string& note :
       std::array{told_of_unwritten(findings.unwritten), told_of_loose_ends(findings.loose_ends)})
    if (!note.empty()) notes.push_back(note);
  return notes;
}

ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format) {
  require(format.longest >= 2, "a row of examples has at least 2 tokens");
  const std::string content = read_text(path, kLargestFile);
  ExampleRows examples;
  RowMaker maker(format);
  const RowTexts texts = row_texts(content, path);
  examples.are_of_array = texts.are_of_array;
  examples.array_key = texts.array_key;
  for (const auto& [line, text] : texts.rows) {
    count_progress();
    try {
      examples.rows.push_back(row_of_line(text, format, maker));
      examples.rows.back().line = line;
    } catch (const DataError& error) {
      examples.refused.push_back({line, error.what()});
      check_is_data(examples, path);
    }
  }
  if (examples.rows.empty() && examples.refused.empty())
    throw DataError(concat(path.string(), ": holds no examples"));
  examples.findings = maker.findings();
  return examples;
}

}  // namespace hybrid_trainer
