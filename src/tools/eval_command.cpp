#include <ctime>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/files/json_writer.h"
#include "hybrid_trainer/generation/evaluation.h"
#include "hybrid_trainer/trainer/example_data.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/device_option.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

namespace {

void check_length(std::int64_t length, std::int64_t context) {
  if (length >= 0 && length <= context) return;
  throw UsageError(concat("hybrid eval: --sequence-length: got ", length, ", want 1 … ", context,
                          ", the model's context"));
}

/// Of a file of examples all rows; of the run's own those that were held back.
std::unique_ptr<EvaluationBatches> rows_of(const TrainedRun& run, const std::string& folder,
                                           const std::filesystem::path& file, DataConfig config,
                                           const Stream& host) {
  if (!run.tokenizer)
    throw DataError(concat(folder, " has no tokenizer, which would encode ", file.string()));
  const bool is_own = file == run.data;
  const RunData own = is_own ? data_of_run(RunPaths{folder}) : RunData{.now = std::time(nullptr)};
  if (!is_own) config.validation_fraction = 0;
  const ExampleFiles files{.examples = file,
                           .validation = own.validation,
                           .tokenizer = run.tokenizer_folder,
                           .now = own.now,
                           .vocabulary = run.config.model.vocabulary};
  ExampleData data = read_example_data(files, *run.tokenizer, config);
  if (is_own && data.checksum != own.checksum)
    throw DataError(concat(file.string(), " is not what the run was trained on: it has changed"));
  for (const std::string& line : told_of_refused(data, files)) std::cerr << line << "\n";
  return std::make_unique<EvaluationRows>(
      std::move(data.validation), packing_of(config, config.batch_size, 0, *run.tokenizer), host);
}

/// `shards`: receives what the batches read from.
std::unique_ptr<EvaluationBatches> batches_of(const TrainedRun& run, const std::string& folder,
                                              const std::filesystem::path& given,
                                              std::int64_t length, const Stream& host,
                                              std::optional<TokenDataset>& shards) {
  const std::filesystem::path data = given.empty() ? run.data : given;
  DataConfig config = run.config.data;
  config.sequence_length = length;
  if (std::filesystem::is_regular_file(data)) return rows_of(run, folder, data, config, host);
  if (!given.empty() && read_data_info(data))
    check_same_tokenizer(run.tokenizer.get(), load_tokenizer(data).get(), data);
  shards.emplace(data, Split::kValidation, run.config.model.vocabulary);
  return std::make_unique<EvaluationWindows>(*shards, config.batch_size, length, host);
}

}  // namespace

int eval_command(const std::vector<std::string>& arguments) {
  std::string data, device = "auto", precision = "fp32";
  std::int64_t length = 0;
  bool json = false, average = false;
  CommandSyntax syntax{
      .name = "eval",
      .usage = "RUN|HF_DIR [--data DATA] [--sequence-length N] [--json]",
      .description =
          "Loss and perplexity of a run's newest checkpoint, or of a Hugging Face folder's\n"
          "model, over the whole validation split, in windows that do not overlap; or over\n"
          "what is learnt of a file of examples.",
      .operands = {"RUN|HF_DIR"}};
  auto add = syntax.options.add_options();
  add("data", po::value(&data)->value_name("DATA"),
      "Another data folder than the run's, of the same tokenizer, or a file of examples.");
  add("sequence-length", po::value(&length)->value_name("N"),
      "Tokens of a window; 0 is the run's data.sequence_length, of a folder up to 1024 (0).");
  add_precision_option(syntax.options, precision);
  add_device_option(syntax.options, device);
  add_average_option(syntax.options, average);
  add("json", po::bool_switch(&json), "Print {\"loss\", \"perplexity\", \"tokens\"}.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  const Stream stream(make_device_pool(device_of_option(device)));
  const TrainedRun run = open_model(operands->front(), stream, run_weights(average), precision);
  const DType dtype = compute_in(*run.model, precision, stream);
  if (data.empty() && run.data.empty())
    throw UsageError(concat("hybrid eval: --data is missing: ", operands->front(),
                            " is a Hugging Face folder, which names none"));
  check_length(length, run.config.model.context);
  std::optional<TokenDataset> shards;
  const auto batches = batches_of(run, operands->front(), data,
                                  length == 0 ? run.config.data.sequence_length : length,
                                  Stream(make_host_pool(stream.device())), shards);
  const EvaluationResult result = evaluate(*run.model, *batches, dtype, stream);
  if (json) {
    JsonWriter out;
    out.begin_object();
    out.number("loss", result.loss);
    out.number("perplexity", result.perplexity);
    out.number("tokens", result.tokens);
    out.end_object();
    std::cout << out.text() << "\n";
  } else {
    std::cout << "loss " << result.loss << ", perplexity " << result.perplexity << " over "
              << result.tokens << " tokens\n";
  }
  return 0;
}

}  // namespace hybrid_trainer
