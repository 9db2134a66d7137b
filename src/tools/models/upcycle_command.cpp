#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/model_files/hugging_face/upcycling.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"

namespace hybrid_trainer {

namespace {

struct UpcycleOptions {
  std::string output;
  Upcycling asked;
};

CommandSyntax upcycle_syntax(UpcycleOptions& options) {
  CommandSyntax syntax{
      .name = "upcycle",
      .usage = "HF_DIR --output MOE_DIR [--experts N] [--chosen K] [options]",
      .description =
          "Makes a mixture of experts of a dense model's Hugging Face folder: each expert is a\n"
          "copy of the layer's feed-forward branch, the router is new, the rest is kept. Without\n"
          "--redraw and --noise the mixture computes what the dense model does. Train it with\n"
          "`hybrid train --init-from` or `hybrid finetune`.",
      .operands = {"HF_DIR"}};
  Upcycling& asked = options.asked;
  auto add = syntax.options.add_options();
  add("output", po::value(&options.output)->required()->value_name("MOE_DIR"), "Folder to make.");
  add("experts", po::value(&asked.experts)->default_value(asked.experts)->value_name("N"),
      "Experts of each layer.");
  add("chosen", po::value(&asked.chosen)->default_value(asked.chosen)->value_name("K"),
      "Experts that each token goes to.");
  add("shards", po::value(&asked.shards)->default_value(asked.shards)->value_name("G"),
      "Cut each copy into G experts along its inner width. G divides the experts, the chosen ones "
      "and the inner width.");
  add("redraw", po::value(&asked.redraw)->default_value(asked.redraw)->value_name("SHARE"),
      "Draw this share of each expert's inner columns anew, so that experts differ.");
  add("noise", po::value(&asked.noise)->default_value(asked.noise)->value_name("DEVIATION"),
      "Add noise to each expert: its deviation relative to that of each matrix.");
  add("seed", po::value(&asked.seed)->default_value(asked.seed)->value_name("N"),
      "Seed of the routers and of whatever else is drawn.");
  return syntax;
}

}  // namespace

int upcycle_command(const std::vector<std::string>& arguments) {
  UpcycleOptions options;
  const auto operands = parse_command_line(upcycle_syntax(options), arguments);
  if (!operands) return 0;
  if (RunPaths{operands->front()}.hold_a_run())
    throw UsageError(concat(operands->front(), " is a run; make a folder of its model first: ",
                            "hybrid export ", shell_path(operands->front()), " --output MODEL"));
  const auto [model, dtype] =
      upcycle_hugging_face(operands->front(), options.asked, options.output);
  const auto bytes = std::filesystem::file_size(options.output + "/model.safetensors");
  std::cerr << "wrote " << options.output << ": a " << model.family << " with "
            << model.experts.count << " experts of inner width " << model.experts.inner_width
            << " in each layer, " << model.experts.chosen << " chosen; " << units::bytes(bytes)
            << (dtype == DType::kBF16 ? " in bf16" : " in f32") << "\n";
  if (const std::string warning = untrained_router_warning(model.experts); !warning.empty())
    std::cerr << "warning: " << warning << "\n";
  return 0;
}

}  // namespace hybrid_trainer
