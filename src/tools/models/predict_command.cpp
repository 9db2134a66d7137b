#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/files/json.h"
#include "src/files/npy.h"
#include "src/files/output_file.h"
#include "src/tasks/task_kind.h"
#include "src/tools/commands.h"
#include "src/tools/open_model.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

struct PredictOptions {
  PredictionRequest of;
  std::string data, output, columns;
  std::optional<std::int64_t> batch_size{};
  ModelOptions open;
};

CommandSyntax predict_syntax(PredictOptions& options) {
  CommandSyntax syntax{
      .name = "predict",
      .usage = "RUN|HF_DIR --data FILE [--output FILE] [options]",
      .description =
          "Applies a model to rows as for training, with or without labels, in their order: the\n"
          "class or score of a text, pair of texts or image, the embedding of each text of a row,\n"
          "the target of each window of a table of series, or the outputs of a network of parts.",
      .operands = {"RUN|HF_DIR"}};
  auto add = syntax.options.add_options();
  add("data", po::value(&options.data)->value_name("FILE")->required(),
      "Rows as for finetune: a file, a folder of files, or - for standard input. For image, array "
      "and series models, data as for train.");
  add("output", po::value(&options.output)->value_name("FILE"),
      "FILE.jsonl: one JSON object per line, with probabilities of classes. FILE.npy: a float32 "
      "matrix of logits, scores or embeddings. Default: JSON lines on standard output.");
  add_columns_option(syntax.options, options.columns);
  add("batch-size", optional_value(options.batch_size, "N"),
      "Maximum sequences or examples per pass. Default: the run's data.batch_size.");
  add_model_options(syntax.options, options.open);
  return syntax;
}

enum class Form { kLines, kMatrix };

Form form_of(const std::string& output) {
  const std::string ending = std::filesystem::path(output).extension().string();
  if (ending == ".npy") return Form::kMatrix;
  if (output.empty() || ending == ".jsonl") return Form::kLines;
  throw UsageError(concat("hybrid predict: --output: got ", output,
                          ", want a name that ends in .jsonl or .npy"));
}

void check(const PredictOptions& options) {
  form_of(options.output);
  if (options.batch_size && *options.batch_size < 1)
    throw UsageError(
        concat("hybrid predict: --batch-size: got ", *options.batch_size, ", want 1 or more"));
}

/// Calls predict(use) and writes the predictions that it passes to `use`.
void write_predictions(const std::string& output,
                       const std::function<void(const PredictionHandler&)>& predict) {
  if (output.empty()) {
    predict([](const Prediction& one) { std::cout << json_line(one.fields) << "\n"; });
    return;
  }
  replace_file(output, [&](OutputFile& file) {
    if (form_of(output) == Form::kLines) {
      predict([&](const Prediction& one) { file.write(json_line(one.fields) + "\n"); });
      return;
    }
    std::optional<NpyWriter> matrix;
    predict([&](const Prediction& one) {
      if (!matrix) matrix.emplace(file, std::ssize(one.numbers));
      matrix->write(one.numbers);
    });
    if (matrix) matrix->finish();
  });
}

}  // namespace

int predict_command(const std::vector<std::string>& arguments) {
  PredictOptions options;
  const auto operands = parse_command_line(predict_syntax(options), arguments);
  if (!operands) return 0;
  check(options);
  options.of.folder = operands->front();
  options.of.report = [](const std::string& line) { std::cerr << line << "\n"; };
  std::optional<StandardInput> input;
  if (options.data == StandardInput::kOption) {
    options.data = input.emplace().path().string();
    options.of.called = StandardInput::kCalled;
  }
  options.of.data = options.data;
  const Stream stream(make_device_pool(device_of_option(options.open.device)));
  TrainedRun run = open_model(options.of.folder, stream, options.open);
  if (!options.columns.empty()) run.config.data.columns = options.columns;
  if (options.batch_size) run.config.data.batch_size = *options.batch_size;
  const DType dtype = compute_in(*run.network, options.open.precision, stream);
  write_predictions(options.output, [&](const PredictionHandler& use) {
    task_kind(run.config.model).predict(run, options.of, dtype, stream, use);
  });
  return 0;
}

}  // namespace hybrid_trainer
