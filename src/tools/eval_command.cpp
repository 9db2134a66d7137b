#include <iostream>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/files/json_writer.h"
#include "hybrid_trainer/generation/evaluation.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/device_option.h"
#include "src/tools/open_run.h"

namespace hybrid_trainer {

int eval_command(const std::vector<std::string>& arguments) {
  std::string data, device = "auto";
  bool json = false, average = false;
  CommandSyntax syntax{
      .name = "eval",
      .usage = "RUN [--data DATA] [--json]",
      .description =
          "Loss and perplexity of a run's newest checkpoint over the whole validation\n"
          "split, in windows of data.sequence_length that do not overlap.",
      .operands = {"RUN"}};
  auto add = syntax.options.add_options();
  add("data", po::value(&data)->value_name("DATA"),
      "Another data folder than the run's, of the same tokenizer.");
  add_device_option(syntax.options, device);
  add_average_option(syntax.options, average);
  add("json", po::bool_switch(&json), "Print {\"loss\", \"perplexity\", \"tokens\"}.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  const Stream stream(make_device_pool(device_of_option(device)));
  const TrainedRun run = open_run(operands->front(), stream, run_weights(average));
  if (!data.empty() && read_data_info(data))
    check_same_tokenizer(run.tokenizer.get(), load_tokenizer(data).get(), data);
  const TokenDataset validation(data.empty() ? run.data : std::filesystem::path(data),
                                Split::kValidation, run.config.model.vocabulary);
  EvaluationWindows windows(validation, run.config.data.batch_size, run.config.data.sequence_length,
                            Stream(make_host_pool(stream.device())));
  const EvaluationResult result = evaluate(*run.model, windows, DType::kF32, stream);
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
