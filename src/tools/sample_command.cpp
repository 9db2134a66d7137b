#include <cstdio>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/device_option.h"
#include "src/tools/open_run.h"

namespace hybrid_trainer {
namespace {

void print_now(std::string_view piece) {
  std::cout << piece << std::flush;
  if (!std::cout) throw IoError("standard output could not be written");
}

}  // namespace

int sample_command(const std::vector<std::string>& arguments) {
  GenerationSettings settings;
  std::string prompt, device = "auto";
  std::int64_t seed = 0;
  bool average = false;
  CommandSyntax syntax{
      .name = "sample",
      .usage = "RUN --prompt TEXT --tokens N [options]",
      .description =
          "Prints a prompt and its continuation by a run's newest checkpoint, as it comes.\n"
          "The same seed gives the same text. An end-of-text token or a --stop ends it early.",
      .operands = {"RUN"},
      .may_be_empty = "prompt"};
  auto add = syntax.options.add_options();
  add("prompt", po::value(&prompt)->required()->value_name("TEXT"),
      "How the text begins; may be empty.");
  add("tokens", po::value(&settings.tokens)->required()->value_name("N"), "Most tokens to make.");
  add("temperature", po::value(&settings.sampling.temperature)->value_name("T"),
      "Below 1 is bolder, 0 is greedy (1).");
  add("top-k", po::value(&settings.sampling.top_k)->value_name("K"),
      "Only the K likeliest tokens; 0 is all (0).");
  add("top-p", po::value(&settings.sampling.top_p)->value_name("P"),
      "Only the likeliest tokens that hold this share (1).");
  add("min-p", po::value(&settings.sampling.min_p)->value_name("P"),
      "Only tokens that are at least P times as likely as the likeliest (0).");
  add("repetition-penalty", po::value(&settings.sampling.repetition_penalty)->value_name("R"),
      "Above 1, tokens that the text has are less likely (1).");
  add("stop", po::value(&settings.stop)->composing()->value_name("TEXT"),
      "Ends the text before TEXT; may be given more than once.");
  add_device_option(syntax.options, device);
  add_average_option(syntax.options, average);
  add("seed", po::value(&seed)->value_name("S"), "Whole number from 0 on (0).");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (seed < 0) throw UsageError(concat("seed: got ", seed, ", want 0 or more"));
  settings.sampling.seed = static_cast<std::uint64_t>(seed);
  check(settings);

  const Stream stream(make_device_pool(device_of_option(device)));
  const TrainedRun run = open_run(operands->front(), stream, run_weights(average));
  if (!run.tokenizer) {
    throw DataError(concat(operands->front(),
                           " has no tokenizer; its data came without one, so text cannot be made"));
  }
  print_now(prompt);
  const GenerationResult result =
      generate_text(*run.model, *run.tokenizer, prompt, settings, print_now, stream);
  print_now("\n");
  std::fprintf(stderr, "%ld tokens, %.1f tokens/s after a prompt of %ld in %.2f s\n",
               static_cast<long>(result.tokens), result.tokens_per_second(),
               static_cast<long>(result.prompt_tokens), result.prompt_seconds);
  return 0;
}

}  // namespace hybrid_trainer
