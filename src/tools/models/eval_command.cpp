#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/compare/student_interval.h"
#include "src/core/messages.h"
#include "src/data/examples/choice_questions.h"
#include "src/files/json.h"
#include "src/generation/evaluation.h"
#include "src/models/factor_truncation.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/transcription.h"
#include "src/tasks/network_task.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/open_model.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

/// `hybrid eval MODEL --choices FILE`, as it was typed.
struct ChoiceEvaluation {
  std::string model, file, against;  // against: another model, or empty
  RunWeights weights{};              // of `model`
  std::string precision = "fp32", home = "device";
  bool json = false;
};

/// Whether each question was answered right, by both ways to choose.
struct Answers {
  std::vector<double> by_sum, by_bytes;  // 1 or 0
  boost::json::array each{};             // what was found of each question
};

/// Answers of one model, and what the questions were.
struct ModelAnswers {
  std::string folder;
  std::int64_t step = 0;  // of a run
  Answers answers;
  double chance = 0;  // share that is right by chance
  std::size_t fewest = 0, most = 0;
};

std::size_t place_of_largest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

void answer(const ChoiceQuestion& question, ContinuationScores& scores, Answers& answers) {
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
              << " questions no space stands between prompt and choices; they are joined as they "
                 "are\n";
  return read;
}

ModelAnswers answers_of(const ChoiceEvaluation& asked, const std::string& folder,
                        const RunWeights& weights, const Stream& stream) {
  const WritingModel model(folder, asked.precision, weights, stream, asked.home);
  const ChoiceQuestions read = questions_for(model, asked.file);
  ModelAnswers found{.folder = folder, .step = model.run.step, .answers = {}};
  ContinuationScores scores(model.run.model(), model.dtype, stream);
  for (const ChoiceQuestion& question : read.questions) {
    answer(question, scores, found.answers);
    const std::size_t count = question.choices.size();
    found.fewest = found.fewest == 0 ? count : std::min(found.fewest, count);
    found.most = std::max(found.most, count);
    found.chance += 1 / static_cast<double>(count) / static_cast<double>(read.questions.size());
  }
  return found;
}

struct Share {
  double mean = 0;
  std::optional<double> error{};  // standard error; none of one question alone
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
  const Share by_sum = share_of(model.answers.by_sum), by_bytes = share_of(model.answers.by_bytes);
  boost::json::object object{{"model", model.folder}};
  if (model.step > 0) object["step"] = model.step;
  object["accuracy"] = by_sum.mean;
  object["accuracy_standard_error"] = json_or_null(by_sum.error);
  object["accuracy_by_bytes"] = by_bytes.mean;
  object["accuracy_by_bytes_standard_error"] = json_or_null(by_bytes.error);
  object["answers"] = model.answers.each;
  return object;
}

boost::json::object interval_json(const Interval& interval) {
  return {{"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

void print_json(const ModelAnswers& model, const ModelAnswers* base) {
  boost::json::object object = model_json(model);
  object["questions"] = model.answers.by_sum.size();
  object["chance"] = model.chance;
  if (base != nullptr) {
    object["against"] = model_json(*base);
    object["difference"] = {
        {"confidence", 0.95},
        {"accuracy", interval_json(difference(model.answers.by_sum, base->answers.by_sum))},
        {"accuracy_by_bytes",
         interval_json(difference(model.answers.by_bytes, base->answers.by_bytes))}};
  }
  std::cout << json_line(object) << "\n";
}

/// "62.0 % ± 4.9".
std::string share_text(const Share& share) {
  return concat(units::fixed(100 * share.mean, 1), " %",
                share.error ? concat(" ± ", units::fixed(100 * *share.error, 1)) : "");
}

/// "+12.0 (+3.1 to +20.9)".
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
          share_text(share_of(model.answers.by_sum)), share_text(share_of(model.answers.by_bytes))};
}

/// In columns: "±" is one character of two bytes.
std::string padded_columns(const std::string& text, std::size_t width) {
  const auto characters = static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return text + std::string(width > characters ? width - characters : 0, ' ');
}

void print_table(const ModelAnswers& model, const ModelAnswers* base) {
  std::vector<TableLine> lines{{"", "accuracy", "by bytes"}, line_of(model)};
  if (base != nullptr) {
    lines.push_back(line_of(*base));
    lines.push_back({"difference",
                     difference_text(difference(model.answers.by_sum, base->answers.by_sum)),
                     difference_text(difference(model.answers.by_bytes, base->answers.by_bytes))});
  }
  std::size_t name = 0, sum = 0;
  for (const TableLine& line : lines) {
    name = std::max(name, line.name.size() + 2);
    sum = std::max(sum, line.by_sum.size() + 2);
  }
  for (const TableLine& line : lines)
    std::cout << padded_columns(line.name, name) << padded_columns(line.by_sum, sum)
              << line.by_bytes << "\n";
  const std::size_t count = model.answers.by_sum.size();
  std::cout << count << (count == 1 ? " question" : " questions") << " of " << model.fewest;
  if (model.most > model.fewest) std::cout << " to " << model.most;
  std::cout << " choices; chance is " << units::fixed(100 * model.chance, 1)
            << " %; ± is one standard error"
            << (base == nullptr ? "" : "; the difference has its 95 % interval") << "\n";
}

/// Prints how often the model, and the one to compare with, finds the right choice of each question
/// the likeliest: by the sum of its tokens' log-probabilities, and by that for each byte of its text.
/// Throws as WritingModel and read_choice_questions.
void evaluate_choices(const ChoiceEvaluation& asked, const Stream& stream) {
  const ModelAnswers model = answers_of(asked, asked.model, asked.weights, stream);
  std::optional<ModelAnswers> base;
  if (!asked.against.empty()) base = answers_of(asked, asked.against, {}, stream);
  const ModelAnswers* const other = base ? &*base : nullptr;
  asked.json ? print_json(model, other) : print_table(model, other);
}

/// Prints how good a network that is no language model is on held-out examples of its run's data, or of
/// `data`. Throws UsageError, OutOfMemory, Diverged.
void evaluate_network(const TrainedRun& run, const std::string& data, const std::string& precision,
                      bool json, const Stream& stream) {
  const DType dtype = compute_in(*run.network, precision, stream);
  const NetworkScore found = score(run, data, dtype, stream);
  if (!json) {
    std::cout << found.text("\n  ") << "\n";
    return;
  }
  boost::json::object line{{"loss", found.loss}, {"examples", found.examples}};
  if (found.best_loss) line["best_loss"] = *found.best_loss;
  for (const Measure& measure : found.measures) {
    line[measure.name] = measure.sum / std::max(1.0, measure.count);
    if (!is_share(measure)) continue;
    const ShareInterval interval = interval_of_share(measure);
    line[measure.name + "_interval"] = {interval.low, interval.high};
  }
  std::cout << json_line(line) << "\n";
}

void check_length(std::int64_t length, std::int64_t context) {
  if (length >= 0 && length <= context) return;
  throw UsageError(concat("hybrid eval: --sequence-length: got ", length, ", want 1 … ", context,
                          ", the model's context"));
}

struct EvalOptions {
  std::string data, choices, against, device = "auto", precision = "fp32", home = "device",
                                      control_tokens, columns;
  std::int64_t length = 0;  // 0: not given
  std::optional<std::int64_t> factor_rank{};
  RunWeightsOption weights;
  std::string called;  // the name of `data` in messages, where that is not its path
  bool json = false;
};

void check_choices(const EvalOptions& options) {
  if (options.choices.empty() && !options.against.empty())
    throw UsageError("hybrid eval: --against goes with --choices");
  if (options.choices.empty()) return;
  const char* const other = !options.data.empty()             ? "--data"
                            : options.length != 0             ? "--sequence-length"
                            : options.factor_rank             ? "--factor-rank"
                            : !options.control_tokens.empty() ? "--control-tokens"
                                                              : nullptr;
  if (other != nullptr)
    throw UsageError(concat("hybrid eval: --choices and ", other,
                            " are both given; questions are measured without it"));
}

/// Throws UsageError of options that would change nothing for a network that reads no text.
void check_of_network(const EvalOptions& options, const std::string& family) {
  const char* const other = options.length != 0               ? "--sequence-length"
                            : options.factor_rank             ? "--factor-rank"
                            : !options.control_tokens.empty() ? "--control-tokens"
                                                              : nullptr;
  if (other == nullptr) return;
  throw UsageError(concat("hybrid eval: ", other, " is of text, and a network of family ", family,
                          " reads none; leave it out"));
}

/// Makes room for the longest row, in batches of as many tokens.
void fit_longest(DataConfig& config, const std::vector<ExampleRow>& rows) {
  std::int64_t longest = 0;
  for (const ExampleRow& row : rows) longest = std::max(longest, row.places());
  if (longest <= config.sequence_length) return;
  config.batch_size =
      std::max<std::int64_t>(1, config.batch_size * config.sequence_length / longest);
  config.sequence_length = longest;
}

/// What is measured on; of clips also which.
struct MeasuredModel {
  std::unique_ptr<EvaluationBatches> batches;
  std::vector<ExampleRow> clips{};
};

/// Of a file of examples all rows, whole as far as the context has room; of the run's own those that
/// were held back, as long as the run has them.
MeasuredModel rows_of(const TrainedRun& run, const std::string& folder,
                      const std::filesystem::path& file, const EvalOptions& options,
                      const Stream& host, const Stream& stream) {
  if (!run.tokenizer)
    throw DataError(concat(folder, " has no tokenizer, which would encode ", file.string()));
  const bool is_own = file == run.data, whole = !is_own && options.length == 0;
  const RunData own = is_own ? data_of_run(RunPaths{folder}) : RunData{.now = std::time(nullptr)};
  DataConfig config = run.config.data;
  if (options.length > 0) config.sequence_length = options.length;
  if (!options.control_tokens.empty()) config.control_tokens = options.control_tokens;
  if (!options.columns.empty()) config.columns = options.columns;
  if (!is_own) config.validation_fraction = 0;
  ModelConfig model = run.config.model;
  if (whole) model.encoder.source_length = 0;
  ExampleFiles files{.examples = file,
                     .validation = own.validation,
                     .tokenizer = run.tokenizer_folder,
                     .now = own.now,
                     .vocabulary = run.config.model.vocabulary,
                     .context = run.config.model.context,
                     .called = options.called,
                     .pairs = run.config.prefers(),
                     .measured = !is_own};
  files.set_encoder(model, {run.tokenizer_folder, run.base, run.origin});
  DataConfig longest = config;
  if (whole) longest.sequence_length = run.config.model.context;
  ExampleData data = read_example_data(files, longest);
  if (is_own && data.checksum != own.checksum)
    throw DataError(concat(file.string(), " is not what the run was trained on: it has changed"));
  for (const std::string& line : told_of_refused(data, files)) std::cerr << line << "\n";
  if (!is_own)
    for (const std::string& note : data.notes) std::cerr << note << "\n";
  if (is_own && !options.data.empty())
    std::cerr << file.string() << " is what the run was trained on: measured on the "
              << data.validation.size() << (data.validation.size() == 1 ? " row" : " rows")
              << " that it was not trained on\n";
  const std::string cut = told_of_cut({&data.validation}, longest.sequence_length,
                                      longest.sequence_length < run.config.model.context
                                          ? "--sequence-length N keeps more of them"
                                          : kContextIsFull);
  if (!cut.empty()) std::cerr << "warning: " << cut << "\n";
  if (files.source) {
    const std::string sources = told_of_cut_sources({&data.validation}, files.source->longest);
    if (!sources.empty()) std::cerr << "warning: " << sources << "\n";
  }
  if (whole) fit_longest(config, data.validation);
  std::int64_t source_length = 0;
  for (const ExampleRow& row : data.validation)
    source_length = std::max(source_length, std::ssize(row.source));
  PackedRows::Settings packing = packing_of(
      config, *run.tokenizer, files.source && !whole ? files.source->longest : source_length);
  if (files.pairs && run.config.objective == "dpo")
    packing.references =
        is_own ? validation_references(RunPaths{folder}, data)
               : references_of_base(RunPaths{folder}, PackedRows(data.validation, packing),
                                    config.batch_size, stream);
  const bool are_clips = files.heard_seconds > 0;
  return {std::make_unique<OrderedBatches>(dataset_of_rows(data.validation, packing, run.config),
                                           config.batch_size, host),
          are_clips ? std::move(data.validation) : std::vector<ExampleRow>()};
}

/// `host`: for the batches; `stream`: of the model. `shards`: receives what the batches read from.
MeasuredModel batches_of(const TrainedRun& run, const std::string& folder,
                         const EvalOptions& options, const Stream& host, const Stream& stream,
                         std::optional<TokenDataset>& shards) {
  const std::filesystem::path given = options.data, data = given.empty() ? run.data : given;
  if (given.empty() && !std::filesystem::exists(data))
    throw MissingInput(concat(data.string(), ": the run's data are not there; put them back, or ",
                              "say where they are or what else to measure on: hybrid eval ",
                              shell_path(folder), " --data DATA"));
  if (run.config.masks() && may_be_examples(data))
    throw DataError(concat(data.string(), " holds examples, and ", folder,
                           " tells masked tokens of windows of text (objective masked); give a "
                           "folder that hybrid prepare made"));
  if (may_be_examples(data)) return rows_of(run, folder, data, options, host, stream);
  if (!given.empty() && read_data_info(data))
    check_same_tokenizer(run.tokenizer.get(), load_tokenizer(data).get(), data);
  shards.emplace(data, Split::kValidation, run.config.data_vocabulary());
  return {window_evaluation(*shards, run.config,
                            options.length == 0 ? run.config.data.sequence_length : options.length,
                            host)};
}

/// Of pairs of answers, of which there is no perplexity.
void print_pairs(const EvaluationResult& result, const HybridTrainerConfig& config, bool json) {
  if (!json) {
    std::cout << "loss " << result.loss << " over " << result.tokens
              << " pairs; the chosen answer has "
              << "the larger reward in " << units::fixed(100 * result.preference->accuracy, 1)
              << " %, mean margin " << brief(result.preference->margin()) << "\n";
    return;
  }
  const boost::json::object line{{"loss", result.loss},
                                 {"pairs", result.tokens},
                                 {"preference_accuracy", result.preference->accuracy},
                                 {"reward_margin", result.preference->margin()},
                                 {"reward_chosen", result.preference->reward_chosen},
                                 {"reward_rejected", result.preference->reward_rejected},
                                 {"objective", config.objective}};
  std::cout << json_line(line) << "\n";
}

/// Of clips of speech.
void print_words(const EvaluationResult& result, const WordErrors& words, bool json) {
  if (!json) {
    std::cout << "loss " << result.loss << " over " << result.tokens << " tokens; word error rate "
              << units::fixed(100 * words.rate(), 1) << " % of " << words.words << " words ("
              << words.substitutions << " wrong, " << words.deletions << " missing, "
              << words.insertions << " too many)\n";
    return;
  }
  const boost::json::object line{{"loss", result.loss},          {"tokens", result.tokens},
                                 {"words", words.words},         {"word_error_rate", words.rate()},
                                 {"wrong", words.substitutions}, {"missing", words.deletions},
                                 {"too_many", words.insertions}};
  std::cout << json_line(line) << "\n";
}

void print(const EvaluationResult& result, const HybridTrainerConfig& config, bool json) {
  if (result.preference) return print_pairs(result, config, json);
  if (!json) {
    std::cout << "loss " << result.loss << ", perplexity " << result.perplexity << " over "
              << result.tokens << (config.masks() ? " masked tokens\n" : " tokens\n");
    return;
  }
  const boost::json::object line{{"loss", result.loss},
                                 {"perplexity", result.perplexity},
                                 {"tokens", result.tokens},
                                 {"objective", config.objective}};
  std::cout << json_line(line) << "\n";
}

}  // namespace

int eval_command(const std::vector<std::string>& arguments) {
  EvalOptions options;
  CommandSyntax syntax{
      .name = "eval",
      .usage =
          "RUN|HF_DIR [--data DATA] [--sequence-length N] [--json]\n"
          "       hybrid eval RUN|HF_DIR --choices FILE [--against RUN|HF_DIR] [--json]",
      .description =
          "Loss and perplexity of a run's newest checkpoint, or of a Hugging Face folder's\n"
          "model, over the whole validation split, in windows that do not overlap; or over\n"
          "the target tokens of a file of examples. Of a run with objective masked, over the\n"
          "same masked tokens for all runs. With --choices: how often the model finds the right\n"
          "answer of multiple-choice questions the likeliest.",
      .operands = {"RUN|HF_DIR"}};
  auto add = syntax.options.add_options();
  add("data", po::value(&options.data)->value_name("DATA"),
      "Another data folder than the run's, of the same tokenizer; or examples, as finetune takes "
      "them: "
      "a file, a folder of files, or -.");
  add_columns_option(syntax.options, options.columns);
  add("choices", po::value(&options.choices)->value_name("FILE"),
      "Questions, one JSON object a line: {\"prompt\": …, \"choices\": [\"…\", …], \"answer\": "
      "0}.");
  add("against", model_value(options.against, "RUN|HF_DIR"),
      "With --choices: another model to answer the same questions, and the difference with its "
      "interval.");
  add("sequence-length", po::value(&options.length)->value_name("N"),
      "Tokens of a window, and the longest row of examples; 0 is the run's data.sequence_length, "
      "of "
      "a folder up to 1024, and for the rows of another file the model's context (0).");
  const auto factor_rank = [&](std::int64_t rank) { options.factor_rank = rank; };
  add("factor-rank", po::value<std::int64_t>()->value_name("K")->notifier(factor_rank),
      "Truncates the tables of T + U·Vᵀ by position to rank K first, by singular values.");
  add_control_tokens_option(syntax.options, options.control_tokens);
  add_precision_option(syntax.options, options.precision);
  add_weights_option(syntax.options, options.home);
  add_device_option(syntax.options, options.device);
  add_run_weights_options(syntax.options, options.weights);
  add("json", po::bool_switch(&options.json),
      "Print {\"loss\", \"perplexity\", \"tokens\", \"objective\"}.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  const std::string& folder = operands->front();
  std::optional<StandardInput> input;
  if (options.data == StandardInput::kOption) {
    options.data = input.emplace().path().string();
    options.called = StandardInput::kCalled;
  }
  const Stream stream(make_device_pool(device_of_option(options.device)));
  check_choices(options);
  if (!options.choices.empty()) {
    evaluate_choices({.model = folder,
                      .file = options.choices,
                      .against = options.against,
                      .weights = run_weights(options.weights),
                      .precision = options.precision,
                      .home = options.home,
                      .json = options.json},
                     stream);
    return 0;
  }
  TrainedRun run =
      open_model(folder, stream, run_weights(options.weights), options.precision, options.home);
  if (!find_family(run.config.model.family).is_of_language) {
    check_of_network(options, run.config.model.family);
    if (!options.columns.empty()) run.config.data.columns = options.columns;
    evaluate_network(run, options.data, options.precision, options.json, stream);
    return 0;
  }
  if (options.factor_rank) truncate_factors(run.model(), *options.factor_rank, stream);
  const DType dtype = compute_in(run.model(), options.precision, stream);
  if (options.data.empty() && run.data.empty())
    throw UsageError(concat(
        "hybrid eval: --data is missing: ", folder,
        std::filesystem::is_directory(folder) ? " is a Hugging Face folder" : " is a GGUF file",
        ", which names none"));
  check_length(options.length, run.config.model.context);
  std::optional<TokenDataset> shards;
  const MeasuredModel on =
      batches_of(run, folder, options, Stream(make_host_pool(stream.device())), stream, shards);
  const GenerationKeys keys = on.clips.empty() ? GenerationKeys() : generation_keys_of(run);
  keys.require_honored();
  const EvaluationResult result =
      evaluate(run.model(), *on.batches, dtype, stream, {}, run.config.memory.segment_length);
  if (on.clips.empty()) {
    print(result, run.config, options.json);
  } else {
    const SpeechTokens tokens = read_speech_tokens(*run.tokenizer, keys);
    print_words(result, heard_words(run.model(), *run.tokenizer, tokens, on.clips, dtype, stream),
                options.json);
  }
  return 0;
}

}  // namespace hybrid_trainer
