#include <iostream>

#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/open_run.h"

namespace hybrid_trainer {

int export_command(const std::vector<std::string>& arguments) {
  std::string output;
  bool average = false;
  CommandSyntax syntax{
      .name = "export",
      .usage = "RUN --output HF_DIR",
      .description =
          "Writes the model of a run's newest checkpoint as a Hugging Face folder, which\n"
          "transformers opens and `hybrid train --init-from` reads back.",
      .operands = {"RUN"}};
  syntax.options.add_options()("output", po::value(&output)->required()->value_name("HF_DIR"),
                               "Folder to make.");
  add_average_option(syntax.options, average);
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = open_run(operands->front(), stream, run_weights(average));
  export_hugging_face(*run.model, run.tokenizer.get(), output, stream);
  std::cerr << "wrote " << output << " from step " << run.step << "\n";
  if (!run.tokenizer || run.tokenizer->kind() != TokenizerKind::kBpe) {
    std::cerr
        << "without tokenizer files: only a BPE tokenizer has a form that transformers reads\n";
  }
  return 0;
}

}  // namespace hybrid_trainer
