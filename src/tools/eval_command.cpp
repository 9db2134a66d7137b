#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/generation/evaluation.h"
#include "hybrid_trainer/generation/factor_truncation.h"
#include "hybrid_trainer/run/example_data.h"
#include "hybrid_trainer/run/folder_writing.h"
#include "hybrid_trainer/run/window_evaluation.h"
#include "hybrid_trainer/speech/clip_batches.h"
#include "hybrid_trainer/speech/clip_features.h"
#include "hybrid_trainer/speech/heard_words.h"
#include "src/tools/choice_evaluation.h"
#include "src/tools/columns_option.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/control_tokens_option.h"
#include "src/tools/device_option.h"
#include "src/tools/model_path.h"
#include "src/tools/network_evaluation.h"
#include "src/tools/open_model.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

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
  ExampleData data = read_example_data(files, *run.tokenizer, longest);
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
  PackedRows::Settings packing =
      packing_of(config, config.batch_size, 0, *run.tokenizer,
                 files.source && !whole ? files.source->longest : source_length);
  if (files.pairs && run.config.objective == "dpo")
    packing.references =
        is_own ? validation_references(RunPaths{folder}, data)
               : references_of_base(RunPaths{folder}, data.validation, packing, stream);
  if (files.heard_seconds > 0) {
    packing.packs = false;
    return {std::make_unique<EvaluationClips>(
                data.validation,
                ClipBatches::Settings{.rows = packing, .encoder = run.config.model.encoder}, host),
            data.validation};
  }
  return {std::make_unique<EvaluationRows>(std::move(data.validation), packing, host)};
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
