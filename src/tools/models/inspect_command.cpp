#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/models/inspection.h"

namespace hybrid_trainer {

int inspect_command(const std::vector<std::string>& arguments) {
  bool json = false, digest = false, experts = false;
  std::string tensorboard;
  CommandSyntax syntax{
      .name = "inspect",
      .usage = "PATH [--digest | --experts | --tensorboard DIR] [--json]",
      .description =
          "Shows what a path holds: a run, a checkpoint (its checksums are verified), a data,\n"
          "Hugging Face or adapter folder, a safetensors or GGUF file, a token shard, or the\n"
          "oom.json of a run that ran out of memory.",
      .operands = {"PATH"}};
  syntax.options.add_options()  //
      ("digest", po::bool_switch(&digest),
       "Of a checkpoint, print one checksum for each tensor and, last, one over all.")  //
      ("experts", po::bool_switch(&experts),
       "Of a run of a mixture of experts, print how its routers spread the tokens of the last step "
       "over experts.")  //
      ("tensorboard", po::value(&tensorboard)->value_name("DIR"),
       "Write a run's records into DIR, a new folder, for TensorBoard.")  //
      ("json", po::bool_switch(&json), "Print one JSON object.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if ((digest ? 1 : 0) + (experts ? 1 : 0) + (tensorboard.empty() ? 0 : 1) > 1)
    throw UsageError(
        "--digest, --experts and --tensorboard cannot be given together; give one of them");
  const Inspection found = digest                 ? inspect_digest(operands->front())
                           : experts              ? inspect_experts(operands->front())
                           : !tensorboard.empty() ? write_events_of(operands->front(), tensorboard)
                                                  : inspect(operands->front());
  std::cout << (json ? found.json : found.text);
  return 0;
}

}  // namespace hybrid_trainer
