#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/model_files/hugging_face/upcycling.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"

namespace hybrid_trainer {

int upcycle_command(const std::vector<std::string>& arguments) {
  std::string output;
  Upcycling requested;
  CommandSyntax syntax{
      .name = "upcycle",
      .usage = "HF_DIR --output MOE_DIR [--experts N] [--chosen K] [options]",
      .description =
          "Converts a dense Hugging Face model to a mixture of experts. Each expert is a copy\n"
          "of the layer's feed-forward branch; the router is new, and all other weights are\n"
          "kept. Without --redraw and --noise, the mixture computes the same as the dense\n"
          "model. Train it with `hybrid train --init-from` or `hybrid finetune`.",
      .operands = {"HF_DIR"}};
  auto add = syntax.options.add_options();
  add("output", po::value(&output)->required()->value_name("MOE_DIR"), "Folder to create.");
  add("experts", po::value(&requested.experts)->default_value(requested.experts)->value_name("N"),
      "Experts per layer.");
  add("chosen", po::value(&requested.chosen)->default_value(requested.chosen)->value_name("K"),
      "Experts per token.");
  add("shards", po::value(&requested.shards)->default_value(requested.shards)->value_name("G"),
      "Split each copy into G experts along its inner width. G must divide --experts, --chosen and "
      "the inner width.");
  add("redraw", po::value(&requested.redraw)->default_value(requested.redraw)->value_name("SHARE"),
      "Reinitialize this share of each expert's inner columns, so that experts differ.");
  add("noise", po::value(&requested.noise)->default_value(requested.noise)->value_name("DEVIATION"),
      "Add noise to each expert, with this standard deviation relative to the deviation of each "
      "matrix.");
  add("seed", po::value(&requested.seed)->default_value(requested.seed)->value_name("N"),
      "Seed of the routers and of all other random numbers.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (RunPaths{operands->front()}.contains_run())
    throw UsageError(concat(operands->front(), " is a run; export its model first: hybrid export ",
                            shell_path(operands->front()), " --output MODEL"));
  const auto [model, dtype] = upcycle_hugging_face(operands->front(), requested, output);
  const auto bytes = std::filesystem::file_size(output + "/model.safetensors");
  std::cerr << "wrote " << output << ": a " << model.family << " with " << model.experts.count
            << " experts of inner width " << model.experts.intermediate_size << " per layer, "
            << model.experts.chosen << " per token; " << units::bytes(bytes)
            << (dtype == DType::kBF16 ? " in bf16" : " in f32") << "\n";
  if (const std::string warning = untrained_router_warning(model.experts); !warning.empty())
    std::cerr << "warning: " << warning << "\n";
  return 0;
}

}  // namespace hybrid_trainer
