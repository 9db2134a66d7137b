#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <iostream>

#include "hybrid_trainer/chat/chat_template.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/fine_tuning/packed_rows.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/control_tokens_option.h"

namespace hybrid_trainer {
namespace {

struct RowCounts {
  std::int64_t tokens = 0, targets = 0, cut_rows = 0, left_out = 0, answers_left_out = 0;
};

RowCounts counts_of(const std::vector<ExampleRow>& rows) {
  RowCounts counts;
  for (const ExampleRow& row : rows) {
    counts.tokens += std::ssize(row.tokens);
    counts.targets += row.targets();
    counts.cut_rows += row.left_out > 0 ? 1 : 0;
    counts.left_out += row.left_out;
    counts.answers_left_out += row.answers_left_out;
  }
  return counts;
}

void print_refusals(const std::vector<ExampleRows::Refusal>& refused) {
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, refused.size()); ++i)
    std::cerr << "line " << refused[i].line << " is refused: " << refused[i].reason << "\n";
  if (refused.size() > kShown) std::cerr << "and " << refused.size() - kShown << " more\n";
}

struct RowPart {
  std::string text;
  bool learned = false;
  const char* answer = nullptr;  // of a pair: "chosen" or "rejected"
};

/// The row of a line, cut where learning begins and ends.
std::vector<RowPart> parts_of_row(const ExampleRows& examples, std::int64_t line,
                                  const Tokenizer& tokenizer) {
  const auto row = std::ranges::find(examples.rows, line, &ExampleRow::line);
  if (row == examples.rows.end()) throw DataError(concat("line ", line, " gives no row"));
  std::vector<RowPart> parts;
  const auto middle = static_cast<std::size_t>(row->rejected_at);
  for (std::size_t begin = 0, end = 0; begin < row->tokens.size(); begin = end) {
    while (end < row->tokens.size() && row->learnt[end] == row->learnt[begin] &&
           (end == begin || end != middle))
      ++end;
    const std::span<const std::int32_t> tokens(row->tokens);
    parts.push_back({tokenizer.decode(tokens.subspan(begin, end - begin)), row->learnt[begin]});
    if (middle > 0) parts.back().answer = begin < middle ? "chosen" : "rejected";
  }
  return parts;
}

void print_row(const std::vector<RowPart>& parts) {
  const char* answer = nullptr;
  for (const RowPart& part : parts) {
    if (part.answer != answer) std::cout << (answer ? "\n" : "") << part.answer << ": ";
    answer = part.answer;
    std::cout << (part.learned ? concat("⟦", part.text, "⟧") : part.text);
  }
  std::cout << "\n";
}

void print_row_as_json(const std::vector<RowPart>& parts, std::int64_t line) {
  boost::json::array texts;
  for (const RowPart& part : parts) {
    boost::json::object one{{"text", part.text}, {"learned", part.learned}};
    if (part.answer != nullptr) one["answer"] = part.answer;
    texts.push_back(std::move(one));
  }
  std::cout << json_line({{"line", line}, {"parts", texts}}) << "\n";
}

void print_json(const ExampleRows& examples, const PackedRows& packed) {
  const RowCounts counts = counts_of(examples.rows);
  boost::json::array refused;
  for (const auto& [line, reason] : examples.refused)
    refused.push_back({{"line", line}, {"reason", reason}});
  const boost::json::object line{{"rows", examples.rows.size()},
                                 {"tokens", counts.tokens},
                                 {"targets", counts.targets},
                                 {"cut_rows", counts.cut_rows},
                                 {"tokens_left_out", counts.left_out},
                                 {"answers_left_out", counts.answers_left_out},
                                 {"sequences", packed.sequences()},
                                 {"fill", packed.fill()},
                                 {"refused", refused}};
  std::cout << json_line(line) << "\n";
}

void print_text(const ExampleRows& examples, const PackedRows& packed, std::int64_t longest) {
  const RowCounts counts = counts_of(examples.rows);
  std::cout << examples.rows.size() << " rows of " << units::grouped(counts.tokens)
            << " tokens, of which " << units::grouped(counts.targets) << " are targets; "
            << examples.refused.size() << " lines refused\n";
  if (counts.cut_rows > 0)
    std::cout << counts.cut_rows << " rows are cut after " << longest + 1 << " tokens, "
              << units::grouped(counts.left_out) << " tokens left out\n";
  std::cout << packed.sequences() << " sequences of " << longest << " tokens, "
            << units::fixed(100 * packed.fill(), 1) << " % of them filled\n";
}

}  // namespace

int rows_command(const std::vector<std::string>& arguments) {
  std::string model, control_tokens = "tokens", objective = "next_token";
  std::int64_t longest = 1024;
  std::optional<std::int64_t> shown;
  bool json = false;
  CommandSyntax syntax{
      .name = "rows",
      .usage = "EXAMPLES --model FOLDER [--objective WHAT] [--length N] [--show LINE] [--json]",
      .description =
          "Shows what a model would learn from a file of examples (JSON lines of text, prompt and\n"
          "completion, or messages): rows used and refused, tokens, and packed sequences.",
      .operands = {"EXAMPLES"}};
  auto add = syntax.options.add_options();
  add("model", po::value(&model)->required()->value_name("FOLDER"),
      "Hugging Face folder with tokenizer and chat template.");
  add("length", po::value(&longest)->value_name("N"),
      "data.sequence_length of the run to come (1024); a row has at most one token more.");
  add("show",
      po::value<std::int64_t>()->value_name("LINE")->notifier([&](auto line) { shown = line; }),
      "Print the row of this line, its target tokens between ⟦ and ⟧.");
  add("objective", po::value(&objective)->value_name("WHAT"),
      "That of the run to come: next_token, or dpo or orpo, whose rows are pairs of answers "
      "(next_token).");
  add_control_tokens_option(syntax.options, control_tokens);
  add("json", po::bool_switch(&json), "Print one JSON object.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (longest < 2 || longest > 1 << 24)
    throw UsageError(concat("hybrid rows: --length: got ", longest, ", want 2 … ", 1 << 24));

  const std::vector<std::string> objectives{"next_token", "dpo", "orpo"};
  if (std::ranges::count(objectives, objective) == 0)
    throw UsageError(choice_problem("hybrid rows: --objective", objective, objectives));
  if (shown && *shown < 1)
    throw UsageError(concat("hybrid rows: --show: got ", *shown, ", want a line, 1 or more"));

  const ChatFiles chat = read_chat_files(model);
  const auto tokenizer = load_tokenizer(model);
  ExampleRows examples =
      read_example_rows(operands->front(), {.tokenizer = *tokenizer,
                                            .chat = chat,
                                            .longest = longest + 1,
                                            .now = std::time(nullptr),
                                            .control = control_text_of(control_tokens),
                                            .pairs = objective != "next_token"});
  const auto reads_date = [](const auto& source) { return source && source->reads_date(); };
  if (reads_date(chat.chat_template) || reads_date(chat.tool_template))
    std::cerr << "the chat template writes today's date into the rows\n";
  if (examples.are_of_array)
    std::cerr << operands->front() << (examples.array_key.empty() ? " is" : " holds")
              << " a JSON array"
              << (examples.array_key.empty() ? "" : " under " + examples.array_key)
              << ", whose elements count as lines\n";
  print_refusals(examples.refused);
  for (const std::string& note : examples.notes()) std::cerr << note << "\n";
  if (shown) {
    const std::vector<RowPart> parts = parts_of_row(examples, *shown, *tokenizer);
    json ? print_row_as_json(parts, *shown) : print_row(parts);
    return 0;
  }
  const PackedRows packed(examples.rows, {.sequence_length = longest});
  if (json) {
    print_json(examples, packed);
  } else {
    print_text(examples, packed, longest);
  }
  return 0;
}

}  // namespace hybrid_trainer
