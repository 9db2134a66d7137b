#include "hybrid_trainer/fine_tuning/example_rows.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/progress.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "row_texts.h"
#include "row_tokens.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 30;
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

ExampleRow row_of_line(std::string_view text, const ExampleFormat& format) {
  const auto value = parse_json_text(text, "the line", {.max_bytes = kLongestLine});
  if (!value.is_object()) throw DataError("it is no JSON object");
  return tokens_of_example(value.get_object(), format);
}

}  // namespace

std::int64_t ExampleRow::targets() const { return std::count(learnt.begin(), learnt.end(), true); }

ExampleRows read_example_rows(const std::filesystem::path& path, const ExampleFormat& format) {
  require(format.longest >= 2, "a row of examples has at least 2 tokens");
  const std::string content = read_text(path, kLargestFile);
  ExampleRows examples;
  for (const auto& [line, text] : row_texts(content, path)) {
    count_progress();
    try {
      examples.rows.push_back(row_of_line(text, format));
      examples.rows.back().line = line;
    } catch (const DataError& error) {
      examples.refused.push_back({line, error.what()});
    }
  }
  if (examples.rows.empty() && examples.refused.empty())
    throw DataError(concat(path.string(), ": holds no examples"));
  return examples;
}

}  // namespace hybrid_trainer
