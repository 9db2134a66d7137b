#include <algorithm>
#include <iostream>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "hybrid_trainer/trainer/adapter_export.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

namespace {

/// Says where an earlier step of the run had a lower validation loss than the exported one.
void tell_of_better_step(const std::string& folder, std::int64_t step, bool average) {
  const RunPaths paths{folder};
  if (!paths.hold_a_run() || !std::filesystem::exists(paths.metrics())) return;
  struct Measured {
    std::int64_t step = 0;
    double loss = std::numeric_limits<double>::infinity();
  };
  Measured best, last;
  for_each_record(paths.metrics(), [&](const StepRecord& record) {
    const auto& loss = average ? record.average_validation_loss : record.validation_loss;
    if (!loss || record.step > step) return;
    last = {record.step, *loss};
    if (last.loss < best.loss) best = last;
  });
  if (best.loss >= last.loss || best.step == last.step) return;
  std::cerr << "warning: the lowest validation loss, " << units::fixed(best.loss, 4)
            << ", was at step " << best.step << "; the exported weights are of step " << step
            << ", where it was " << units::fixed(last.loss, 4)
            << " (fewer training.steps or epochs, or a lower learning rate, may keep it)\n";
}

void write_merged(const std::string& folder, const std::string& output, bool average) {
  const MergedExport merged = export_merged(folder, output, run_weights(average));
  std::cerr << "wrote " << output << " from step " << merged.step << ", adapters merged in f32 and "
            << (merged.dtype == DType::kBF16 ? "rounded to bf16" : "kept in f32")
            << "; logits changed by at most " << brief(merged.largest_change) << ", the largest is "
            << brief(merged.largest_logit) << "\n";
  tell_of_better_step(folder, merged.step, average);
}

void tell_written(const std::string& output, const TrainedRun& run) {
  std::cerr << "wrote " << output;
  if (run.step > 0) std::cerr << " from step " << run.step;  // else a folder's
  std::cerr << "\n";
}

void check_quantized_form(const std::string& form, bool is_of_adapters) {
  if (is_of_adapters) throw UsageError("export: --quantize goes without --adapter and --merge");
  if (std::ranges::count(frozen_base_names(), form) == 0 || !is_quantized_base(form))
    throw UsageError(concat("export: --quantize: got ", form, ", want nf4, fp4 or int8"));
}

}  // namespace

int export_command(const std::vector<std::string>& arguments) {
  std::string output;
  std::string quantize;
  bool average = false, adapter = false, merge = false;
  CommandSyntax syntax{
      .name = "export",
      .usage = "RUN|HF_DIR --output HF_DIR [--adapter | --merge | --quantize FORM]",
      .description =
          "Writes the model of a run's newest checkpoint as a Hugging Face folder, which\n"
          "transformers opens and `hybrid train --init-from` reads back. Of a run with adapters\n"
          "(lora.rank): the adapters alone, as PEFT opens them, or merged into the weights. A\n"
          "Hugging Face folder is written anew, mostly to quantise it.",
      .operands = {"RUN|HF_DIR"}};
  syntax.options.add_options()("output", po::value(&output)->required()->value_name("HF_DIR"),
                               "Folder to make.");
  syntax.options.add_options()("adapter", po::bool_switch(&adapter),
                               "Write the adapters alone, in PEFT's format.");
  syntax.options.add_options()(
      "merge", po::bool_switch(&merge),
      "Write the weights with the adapters merged into them, from the base's own files.");
  syntax.options.add_options()("quantize", po::value(&quantize)->value_name("FORM"),
                               "Write products as bitsandbytes has them: nf4, fp4 or int8.");
  add_average_option(syntax.options, average);
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  if (adapter && merge) throw UsageError("export: --adapter and --merge are both given; give one");
  if (!quantize.empty()) check_quantized_form(quantize, adapter || merge);
  if (merge) {
    write_merged(operands->front(), output, average);
    return 0;
  }
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = open_model(operands->front(), stream, run_weights(average),
                                    quantize.empty() ? "fp32" : quantize);
  tell_of_better_step(operands->front(), run.step, average);
  if (adapter) {
    export_adapter(run, output, stream);
    tell_written(output, run);
    return 0;
  }
  if (run.config.lora.is_on())
    throw UsageError("export: the run has adapters (lora.rank); give --adapter or --merge");
  export_hugging_face(*run.model, run.tokenizer.get(), output, stream, model_families(),
                      DType::kF32, run.token_ids);
  tell_written(output, run);
  if (!run.tokenizer || run.tokenizer->kind() != TokenizerKind::kBpe) {
    std::cerr
        << "without tokenizer files: only a BPE tokenizer has a form that transformers reads\n";
  }
  return 0;
}

}  // namespace hybrid_trainer
