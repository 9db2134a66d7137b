#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/compare/comparison.h"
#include "src/core/messages.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/training_ranks.h"
#include "src/tools/train/typed_command.h"

namespace hybrid_trainer {

namespace {

void print_variant(const VariantResult& variant) {
  std::cerr << variant.name;
  if (variant.learning_rate) std::cerr << "  learning rate " << brief(*variant.learning_rate);
  if (variant.edge_of_sweep) std::cerr << " (at the edge of its sweep)";
  if (const auto& loss = variant.loss().interval) {
    std::cerr << "  validation loss " << units::fixed(loss->mean, 4);
    if (loss->low <= loss->high)
      std::cerr << " (" << units::fixed(loss->low, 4) << " to " << units::fixed(loss->high, 4)
                << ")";
  } else {
    std::cerr << "  not every seed has a validation loss";
  }
  if (variant.to_target && variant.to_target->seconds.interval)
    std::cerr << "  target after " << units::duration(variant.to_target->seconds.interval->mean);
  std::cerr << "\n";
}

void print_result(const ComparisonResult& result, const std::string& output) {
  for (const VariantResult& variant : result.variants) print_variant(variant);
  for (const VariantResult& variant : result.variants) {
    if (!variant.claim.empty()) std::cerr << variant.claim << "\n";
    if (variant.why_no_claim.empty()) continue;
    const std::string difference = difference_text(variant, result.variants.front());
    if (!difference.empty()) std::cerr << difference << "\n";
    std::cerr << "no claim about " << variant.name << ": " << variant.why_no_claim << "\n";
  }
  for (const std::string& warning : result.warnings) std::cerr << "warning: " << warning << "\n";
  std::cerr << "report: " << output << "/report.html\n";
}

}  // namespace

int compare_command(const std::vector<std::string>& arguments) {
  std::string output;
  bool resume = false, json = false, markdown = false;
  CommandSyntax syntax{
      .name = "compare",
      .usage = "SPEC.json --output DIR [--resume] [--json | --markdown]",
      .description =
          "Compares training variants over several seeds, with an equal number of learning-rate\n"
          "trials for each variant. Reports confidence intervals, and time, tokens and FLOPs to\n"
          "a target loss. Writes result.json, report.html and runs/ to DIR. docs/COMPARE.md\n"
          "describes SPEC.",
      .operands = {"SPEC.json"}};
  auto add = syntax.options.add_options();
  add("output", po::value(&output)->required()->value_name("DIR"),
      "New or empty folder for the results.");
  add("resume", po::bool_switch(&resume),
      "Continue the comparison in DIR: finished runs are kept, and an interrupted run resumes from "
      "its checkpoint. SPEC may have additional variants, seeds and budgets.");
  add("json", po::bool_switch(&json), "Print result.json.");
  add("markdown", po::bool_switch(&markdown), "Print a table of the variants and the claims.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  if (json && markdown) throw UsageError("compare: --json and --markdown are both given; give one");
  resume = resumes(resume);
  const std::string typed = as_typed("compare", arguments);
  const ComparisonOutcome end = run_comparison({.spec = operands->front(),
                                                .output = output,
                                                .resume = resume,
                                                .command = typed,
                                                .quiet = is_quiet(json)},
                                               std::cerr);
  if (end.interrupted) return static_cast<int>(ExitCode::kInterrupted);
  if (json) {
    std::cout << end.result_json;
  } else if (markdown) {
    std::cout << end.markdown;
  } else {
    print_result(end.result, output);
  }
  return 0;
}

}  // namespace hybrid_trainer
