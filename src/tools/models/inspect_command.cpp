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
          "Shows the contents of a run, a checkpoint (and verifies its checksums), a data\n"
          "folder, a Hugging Face or adapter folder, a safetensors or GGUF file, a token shard,\n"
          "or the oom.json of a run that ran out of memory.",
      .operands = {"PATH"}};
  syntax.options.add_options()  //
      ("digest", po::bool_switch(&digest),
       "Print one checksum per tensor of a checkpoint, and finally one for all tensors.")  //
      ("experts", po::bool_switch(&experts),
       "For a run of a mixture of experts, print how its routers distributed the tokens of the "
       "last step over the experts.")  //
      ("tensorboard", po::value(&tensorboard)->value_name("DIR"),
       "Write the records of a run for TensorBoard to DIR, a new folder.")  //
      ("json", po::bool_switch(&json), "Print the result as one JSON object.");
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
