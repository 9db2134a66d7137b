#include "hybrid_trainer/fine_tuning/example_rows.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/progress.h"
#include "hybrid_trainer/files/python_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "row_texts.h"
#include "row_tokens.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 30;
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

ExampleRow row_of_line(std::string_view text, RowMaker& maker) {
  WideIntegers wide;
  const auto value = parse_noted_json(text, "the line", kLongestLine, wide);
  if (!value.is_object()) throw DataError("it is no JSON object");
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
    notes.push_back(concat(answers, " answers in ", of_rows, " rows are not learnt: the chat ",
                           "template does not write them, or writes them where they cannot be ",
                           "told apart"));
  std::string keys;
  for (const std::string& key : unused_keys) keys += (keys.empty() ? "\"" : ", \"") + key + '"';
  if (!keys.empty())
    notes.push_back(concat("these keys of the examples have no effect here: ", keys));
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
      examples.rows.push_back(row_of_line(text, maker));
      examples.rows.back().line = line;
    } catch (const DataError& error) {
      examples.refused.push_back({line, error.what()});
      check_is_data(examples, path);
    }
  }
  if (examples.rows.empty() && examples.refused.empty())
    throw DataError(concat(path.string(), ": holds no examples"));
  examples.unused_keys = maker.unused_keys();
  return examples;
}

}  // namespace hybrid_trainer
