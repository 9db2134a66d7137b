#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <ctime>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/messages.h"
#include "src/data/examples/choice_questions.h"
#include "src/files/json.h"
#include "src/generation/evaluation.h"
#include "src/models/factor_truncation.h"
#include "src/run/rank_statistics.h"
#include "src/run/run_files.h"
#include "src/tasks/task_kind.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/open_model.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

struct EvalOptions {
  Measuring on;
  std::string model, data, choices, against, columns;
  std::vector<std::string> retrieval{};
  std::optional<std::int64_t> factor_rank{};
  ModelOptions open;
  bool json = false;
};

struct ModelAnswers {
  std::string folder;
  std::int64_t step = 0;                     // step of a run
  std::vector<double> by_sum{}, by_bytes{};  // 1 for a right answer, else 0; scored in two ways
  boost::json::array each{};                 // details of each question
  double chance = 0;                         // expected share by guessing
  std::size_t fewest = 0, most = 0;
};

std::size_t place_of_largest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

void answer(const ChoiceQuestion& question, ContinuationScores& scores, ModelAnswers& answers) {
  std::vector<std::vector<std::int32_t>> continuations;
  for (const ChoiceQuestion::Choice& choice : question.choices)
    continuations.push_back(choice.tokens);
  std::vector<double> values = scores.log_likelihoods(question.prompt, continuations);
  const std::size_t by_sum = place_of_largest(values);
  boost::json::object found{{"line", question.line},
                            {"answer", question.answer},
                            {"log_likelihoods", boost::json::array(values.begin(), values.end())}};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] /= static_cast<double>(question.choices[i].bytes);
  const std::size_t by_bytes = place_of_largest(values);
  answers.by_sum.push_back(by_sum == question.answer ? 1 : 0);
  answers.by_bytes.push_back(by_bytes == question.answer ? 1 : 0);
  found["chosen"] = by_sum;
  found["chosen_by_bytes"] = by_bytes;
  answers.each.push_back(std::move(found));
}

ChoiceQuestions questions_for(const WritingModel& model, const std::string& file) {
  const ChatFiles& chat = model.run.tokenizer_folder.chat();
  ChoiceQuestions read =
      read_choice_questions(file, {.tokenizer = *model.run.tokenizer,
                                   .chat = chat,
                                   .context = model.context(),
                                   .vocabulary = model.run.config.model.vocabulary,
                                   .now = std::time(nullptr)});
  if (read.joined_words > 0)
    std::cerr << "warning: in " << read.joined_words << " of " << read.questions.size()
              << " questions, no space separates the prompt from its choices, and the evaluation "
                 "adds none\n";
  return read;
}

ModelAnswers answers_of(const EvalOptions& requested, const std::string& folder,
                        const RunWeights& weights, const Stream& stream) {
  const WritingModel model(folder, requested.open.precision, weights, stream, requested.open.home);
  const ChoiceQuestions read = questions_for(model, requested.choices);
  ModelAnswers found{.folder = folder, .step = model.run.step};
  ContinuationScores scores(model.run.model(), model.dtype, stream);
  for (const ChoiceQuestion& question : read.questions) {
    answer(question, scores, found);
    const std::size_t count = question.choices.size();
    found.fewest = found.fewest == 0 ? count : std::min(found.fewest, count);
    found.most = std::max(found.most, count);
    found.chance += 1 / static_cast<double>(count) / static_cast<double>(read.questions.size());
  }
  return found;
}

struct Share {
  double mean = 0;
  std::optional<double> error{};  // standard error; not set for a single question
};

Share share_of(const std::vector<double>& right) {
  const double n = static_cast<double>(right.size());
  double sum = 0;
  for (const double one : right) sum += one;
  const double mean = sum / n;
  if (right.size() == 1) return {mean};
  return {mean, std::sqrt(mean * (1 - mean) / (n - 1))};
}

Interval difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return student_interval(differences);
}

boost::json::object model_json(const ModelAnswers& model) {
  const Share by_sum = share_of(model.by_sum), by_bytes = share_of(model.by_bytes);
  boost::json::object object{{"model", model.folder}};
  if (model.step > 0) object["step"] = model.step;
  object["accuracy"] = by_sum.mean;
  object["accuracy_standard_error"] = json_or_null(by_sum.error);
  object["accuracy_by_bytes"] = by_bytes.mean;
  object["accuracy_by_bytes_standard_error"] = json_or_null(by_bytes.error);
  object["answers"] = model.each;
  return object;
}

boost::json::object interval_json(const Interval& interval) {
  return {{"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

void print_json(const ModelAnswers& model, const ModelAnswers* base) {
  boost::json::object object = model_json(model);
  object["questions"] = model.by_sum.size();
  object["chance"] = model.chance;
  if (base != nullptr) {
    object["against"] = model_json(*base);
    object["difference"] = {
        {"confidence", 0.95},
        {"accuracy", interval_json(difference(model.by_sum, base->by_sum))},
        {"accuracy_by_bytes", interval_json(difference(model.by_bytes, base->by_bytes))}};
  }
  std::cout << json_line(object) << "\n";
}

/// Returns the share with its standard error: "62.0 % ± 4.9".
std::string share_text(const Share& share) {
  return concat(units::fixed(100 * share.mean, 1), " %",
                share.error ? concat(" ± ", units::fixed(100 * *share.error, 1)) : "");
}

/// Returns the difference with its interval: "+12.0 (+3.1 to +20.9)".
std::string difference_text(const Interval& interval) {
  const auto with_sign = [](double value) {
    return concat(value >= 0 ? "+" : "", units::fixed(100 * value, 1));
  };
  if (!std::isfinite(interval.low)) return with_sign(interval.mean);
  return concat(with_sign(interval.mean), " (", with_sign(interval.low), " to ",
                with_sign(interval.high), ")");
}

struct TableLine {
  std::string name, by_sum, by_bytes;
};

TableLine line_of(const ModelAnswers& model) {
  return {model.step > 0 ? concat(model.folder, ", step ", model.step) : model.folder,
          share_text(share_of(model.by_sum)), share_text(share_of(model.by_bytes))};
}

/// Pads the text to `width` characters; "±" has two bytes.
std::string padded_columns(const std::string& text, std::size_t width) {
  const auto characters = static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return text + std::string(width > characters ? width - characters : 0, ' ');
}

void print_table(const ModelAnswers& model, const ModelAnswers* base) {
  std::vector<TableLine> lines{{"", "accuracy", "by bytes"}, line_of(model)};
  if (base != nullptr) {
    lines.push_back(line_of(*base));
    lines.push_back({"difference", difference_text(difference(model.by_sum, base->by_sum)),
                     difference_text(difference(model.by_bytes, base->by_bytes))});
  }
  std::size_t name = 0, sum = 0;
  for (const TableLine& line : lines) {
    name = std::max(name, line.name.size() + 2);
    sum = std::max(sum, line.by_sum.size() + 2);
  }
  for (const TableLine& line : lines)
    std::cout << padded_columns(line.name, name) << padded_columns(line.by_sum, sum)
              << line.by_bytes << "\n";
  const std::size_t count = model.by_sum.size();
  std::cout << count << (count == 1 ? " question" : " questions") << " of " << model.fewest;
  if (model.most > model.fewest) std::cout << " to " << model.most;
  std::cout << " choices; chance is " << units::fixed(100 * model.chance, 1)
            << " %; ± is one standard error"
            << (base == nullptr ? "" : "; the difference with its 95 % confidence interval")
            << "\n";
}

/// Prints the share of questions for which the right choice is the likeliest one: by the sum of its
/// log-probabilities, and by this sum divided by the number of bytes of its text.
void evaluate_choices(const EvalOptions& requested, const Stream& stream) {
  const ModelAnswers model = answers_of(requested, requested.model, requested.open.weights, stream);
  std::optional<ModelAnswers> base;
  if (!requested.against.empty()) base = answers_of(requested, requested.against, {}, stream);
  const ModelAnswers* const other = base ? &*base : nullptr;
  requested.json ? print_json(model, other) : print_table(model, other);
}

void check_benchmark(const EvalOptions& options) {
  const bool has_choices = !options.choices.empty();
  if (!has_choices && !options.against.empty())
    throw UsageError("hybrid eval: --against requires --choices");
  if (!has_choices && options.retrieval.empty()) return;
  const char* const other = has_choices && !options.retrieval.empty() ? "--retrieval"
                            : !options.data.empty()                   ? "--data"
                            : !options.columns.empty()                ? "--columns"
                            : options.on.length != 0                  ? "--sequence-length"
                            : options.factor_rank                     ? "--factor-rank"
                            : !options.on.control_tokens.empty()      ? "--control-tokens"
                                                                      : nullptr;
  if (other != nullptr)
    throw UsageError(
        concat("hybrid eval: ", has_choices ? "--choices" : "--retrieval", " and ", other,
               " are both given; ",
               has_choices ? "multiple-choice questions do" : "a retrieval benchmark does",
               " not use ", other, ", so leave that out"));
  constexpr std::size_t kFiles = 3;
  if (!has_choices && options.retrieval.size() != kFiles)
    throw UsageError(concat("hybrid eval: --retrieval: got ", options.retrieval.size(),
                            options.retrieval.size() == 1 ? " file" : " files",
                            ", want three: CORPUS QUERIES RELEVANT, after the model"));
}

}  // namespace

int eval_command(const std::vector<std::string>& arguments) {
  EvalOptions options;
  CommandSyntax syntax{
      .name = "eval",
      .usage =
          "RUN|HF_DIR [--data DATA] [--sequence-length N] [--json]\n"
          "       hybrid eval RUN|HF_DIR --choices FILE [--against RUN|HF_DIR] [--json]\n"
          "       hybrid eval RUN|HF_DIR --retrieval CORPUS QUERIES RELEVANT [--json]",
      .description =
          "Measures loss and perplexity of a run's newest checkpoint or a Hugging Face model,\n"
          "on the whole validation split in windows that do not overlap, or on the target\n"
          "tokens of a file of examples. For classes, rewards and embeddings, measures accuracy,\n"
          "correlation or retrieval. For the objective masked, all runs are measured on the\n"
          "same masked tokens. With --choices, measures the accuracy on multiple-choice\n"
          "questions: how often the correct answer is the most likely one. With --retrieval,\n"
          "measures how well an embedding model finds the relevant documents of queries.",
      .operands = {"RUN|HF_DIR"}};
  auto add = syntax.options.add_options();
  add("data", po::value(&options.data)->value_name("DATA"),
      "Data folder with the same tokenizer, in place of the run's data; or examples as for "
      "finetune: a file, a folder of files, or - for standard input.");
  add_columns_option(syntax.options, options.columns);
  add("choices", po::value(&options.choices)->value_name("FILE"),
      "Multiple-choice questions, one JSON object per line: {\"prompt\": …, \"choices\": [\"…\", "
      "…], \"answer\": 0}.");
  add("against", model_value(options.against, "RUN|HF_DIR"),
      "With --choices: second model for the same questions; prints the difference with its "
      "confidence interval.");
  add("retrieval",
      po::value(&options.retrieval)->multitoken()->value_name("CORPUS QUERIES RELEVANT"),
      "Three files of a retrieval benchmark, as BEIR's: documents {\"_id\", \"title\", \"text\"}, "
      "queries {\"_id\", \"text\"}, and a table with query-id, corpus-id and score.");
  add("sequence-length", po::value(&options.on.length)->value_name("N"),
      "Tokens per window, and the maximum length of a row of examples. 0 (default): for a "
      "file of examples other than the run's own, the model's context; otherwise the run's "
      "data.sequence_length or, for a Hugging Face folder, the model's context, at most 1024.");
  add("factor-rank", optional_value(options.factor_rank, "K"),
      "First truncate the position tables of T + U·Vᵀ to rank K by singular values.");
  add_control_tokens_option(syntax.options, options.on.control_tokens);
  add_model_options(syntax.options, options.open);
  add("json", po::bool_switch(&options.json),
      "Print the result as JSON: {\"loss\", \"perplexity\", \"tokens\", \"objective\"}.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  options.on.folder = options.model = operands->front();
  std::optional<StandardInput> input;
  if (options.data == StandardInput::kOption) {
    options.data = input.emplace().path().string();
    options.on.called = StandardInput::kCalled;
  }
  const Stream stream(make_device_pool(device_of_option(options.open.device)));
  check_benchmark(options);
  if (!options.choices.empty()) {
    evaluate_choices(options, stream);
    return 0;
  }
  TrainedRun run = open_model(options.model, stream, options.open);
  const DType dtype = compute_in(*run.network, options.open.precision, stream);
  const auto print = [&](const Findings& found) {
    std::cout << (options.json ? json_line(found.json) : found.text) << "\n";
  };
  if (!options.retrieval.empty()) {
    print(retrieval_findings(run,
                             {.folder = options.model,
                              .corpus = options.retrieval[0],
                              .queries = options.retrieval[1],
                              .relevant = options.retrieval[2]},
                             dtype, stream));
    return 0;
  }
  if (options.factor_rank)
    truncate_factors(run.model("--factor-rank"), *options.factor_rank, stream);
  if (!options.columns.empty()) run.config.data.columns = options.columns;
  options.on.data = options.data;
  options.on.report = [](const std::string& line) { std::cerr << line << "\n"; };
  print(task_kind(run.config.model).score(run, options.on, dtype, stream));
  return 0;
}

}  // namespace hybrid_trainer
