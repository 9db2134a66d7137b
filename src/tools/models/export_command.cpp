#include <algorithm>
#include <iostream>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/chat/ollama_template.h"
#include "src/files/output_file.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/observability/jsonl_sink.h"
#include "src/run/model_card.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/open_model.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

/// Returns the text in quotes, or in triple quotes if it contains quotes or several lines.
std::string quoted(const std::string& text) {
  const bool is_plain = text.find_first_of("\"\n") == std::string::npos;
  const char* quotes = is_plain ? "\"" : "\"\"\"";
  return quotes + text + quotes;
}

/// Returns the token that llama.cpp adds before each prompt, as export_gguf requests.
std::string start_of_runner(const TrainedRun& run, const ChatFiles& chat) {
  const bool adds = run.tokenizer && !run.tokenizer->template_start().empty();
  return adds ? chat.special_token("bos_token") : "";
}

bool is_taken(const std::filesystem::path& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

/// Writes a file next to a GGUF file, from which Ollama creates a model. The name is `Modelfile`,
/// or `NAME.Modelfile` for `NAME.gguf` if another model's Modelfile exists.
class Modelfile {
 public:
  /// Throws CannotCreate if both names are taken.
  explicit Modelfile(const std::filesystem::path& gguf)
      : gguf_(gguf), path_(gguf.parent_path() / "Modelfile") {
    if (!is_taken(path_)) return;
    const std::filesystem::path first = path_;
    path_ = std::filesystem::path(gguf).replace_extension("Modelfile");
    if (is_taken(path_))
      throw CannotCreate(
          concat(first.string(), " and ", path_.string(),
                 ": both exist already; remove one, or choose another name for --output"));
  }

  /// Writes FROM. If Ollama can express the run's chat template, also writes TEMPLATE and PARAMETER
  /// stop. Reports the result in one line on standard error. Throws IoError.
  void write(const TrainedRun& run) const {
    std::string text = "FROM ./" + gguf_.filename().string() + "\n";
    std::string said;
    try {
      const ChatFiles& chat = run.tokenizer_folder.chat();
      if (!chat.chat_template) throw MissingInput("the model has no chat template");
      const OllamaTemplate made = derive_ollama_template(chat, start_of_runner(run, chat));
      text += "TEMPLATE \"\"\"" + made.text + "\"\"\"\n";
      if (!made.stop.empty()) text += "PARAMETER stop " + quoted(made.stop) + "\n";
      said = concat(": TEMPLATE renders ", made.compared,
                    " test conversations like the model's chat template");
      for (const std::string& remark : made.remarks) said += "; it " + remark;
    } catch (const MissingInput& error) {
      said = concat(" without TEMPLATE: ", error.what());
    } catch (const DataError& error) {
      said = concat(" without TEMPLATE, since Ollama cannot express the chat template: ",
                    error.what());
    }
    create_file(path_, [&](OutputFile& file) { file.write(text); });
    std::cerr << "wrote " << path_.string() << said << "\n";
  }

 private:
  std::filesystem::path gguf_, path_;
};

struct ExportOptions {
  std::string folder, output, base, dtype, quantize, format, type;
  RunWeights weights;
  bool adapter = false, merge = false, modelfile = false, no_card = false;
};

std::string better_step_hint(const RunPaths& paths) {
  if (std::filesystem::exists(paths.checkpoints() + "/best"))
    return "; --checkpoint best exports the best checkpoint that is kept";
  return " (checkpoint.keep_best=1 with training.evaluate_every_steps keeps the best step; or "
         "train with fewer steps or a lower learning rate)";
}

/// Warns if an earlier step of the run had a lower validation loss than the exported one.
void suggest_better_step(const std::string& folder, std::int64_t step,
                         const ExportOptions& requested) {
  const RunPaths paths{folder};
  if (requested.weights.checkpoint != RunWeights::Checkpoint::kNewest || !paths.contains_run() ||
      !std::filesystem::exists(paths.metrics()))
    return;
  struct Measured {
    std::int64_t step = 0;
    double loss = std::numeric_limits<double>::infinity();
  };
  Measured best, last;
  for_each_record(paths.metrics(), [&](const StepRecord& record) {
    const auto& loss =
        requested.weights.is_average() ? record.average_validation_loss : record.validation_loss;
    if (!loss || record.step > step) return;
    last = {record.step, *loss};
    if (last.loss < best.loss) best = last;
  });
  if (best.loss >= last.loss || best.step == last.step) return;
  std::cerr << "warning: the lowest validation loss, " << units::fixed(best.loss, 4)
            << ", was at step " << best.step << "; the exported weights are of step " << step
            << ", and at step " << last.step << " it was " << units::fixed(last.loss, 4)
            << better_step_hint(paths) << "\n";
}

void write_card(const ExportOptions& requested, CardKind kind) {
  if (!requested.no_card) write_model_card(requested.folder, requested.output, kind);
}

bool is_adapter(const std::string& folder) {
  return !RunPaths{folder}.contains_run() && holds_adapter(folder);
}

std::optional<DType> dtype_of(const ExportOptions& requested) {
  if (requested.dtype.empty()) return {};
  return requested.dtype == "bf16" ? DType::kBF16 : DType::kF32;
}

/// Prints what was written; `step` is 0 for the model of a folder.
void print_output_summary(const ExportOptions& requested, std::int64_t step,
                          const std::string& form) {
  std::cerr << "wrote " << requested.output;
  if (step > 0) std::cerr << " from step " << step;
  std::cerr << form << "\n";
}

void write_merged(const ExportOptions& requested) {
  const MergedExport merged = is_adapter(requested.folder)
                                  ? export_merged_adapter(requested.folder, requested.base,
                                                          requested.output, dtype_of(requested))
                                  : export_merged(requested.folder, requested.output,
                                                  requested.weights, dtype_of(requested));
  write_card(requested, CardKind::kMergedModel);
  for (const std::string& warning : merged.warnings) std::cerr << "warning: " << warning << "\n";
  print_output_summary(requested, merged.step,
                       concat(", adapters merged in f32 and ",
                              merged.dtype == DType::kBF16 ? "rounded to bf16" : "kept in f32",
                              merged.change.text()));
  suggest_better_step(requested.folder, merged.step, requested);
}

/// Opens the model with its base in f32, regardless of its format in training.
TrainedRun open_for_merge(const ExportOptions& requested, const Stream& stream) {
  if (is_adapter(requested.folder))
    return load_adapter_folder(requested.folder, "fp32", stream, model_families(), requested.base);
  return load_trained_run(requested.folder, stream, model_families(), requested.weights, "fp32");
}

/// Returns "22 tensors in q8_0, 13 tensors in f32", and why types differ from the requested one.
std::string output_types_text(const GgufExport& written) {
  std::string text;
  for (const auto& [type, count] : written.types)
    text +=
        concat(text.empty() ? "" : ", ", count, count == 1 ? " tensor in " : " tensors in ", type);
  const bool are_blocks = written.type != "f32" && written.type != "f16" && written.type != "bf16";
  if (are_blocks && written.types.contains("f16"))
    text += concat("; f16 in place of ", written.type,
                   " for rows that do not divide into blocks of 32 weights");
  return text;
}

void require_only_adapters(const std::string& folder) {
  const std::vector<std::string> beside = read_adapter_config(folder).extra_weights;
  if (!beside.empty())
    throw DataError(concat(folder, ": ", join(beside),
                           " of the adapter are not supported in a GGUF adapter file; merge the "
                           "adapter instead (--merge)"));
}

void write_gguf(const ExportOptions& requested) {
  std::optional<Modelfile> modelfile;
  if (requested.modelfile) modelfile.emplace(requested.output);
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = requested.merge || is_adapter(requested.folder)
                             ? open_for_merge(requested, stream)
                             : open_model(requested.folder, stream, requested.weights, "fp32");
  if (requested.adapter) {
    if (is_adapter(requested.folder)) require_only_adapters(requested.folder);
    export_gguf_adapter_file(run, requested.output, stream);
    return print_output_summary(requested, run.step, ": adapters in f32, for llama.cpp's --lora");
  }
  if (run.config.freezes() && !requested.merge)
    throw UsageError("export: the run has adapters (lora.rank, parts); give --adapter or --merge");
  const GgufExport written = export_gguf_file(run, requested.type, requested.output, stream);
  print_output_summary(
      requested, run.step,
      concat(": ", output_types_text(written), ", ", units::bytes(written.bytes),
             written.change.text(),
             written.tokens > 0
                 ? concat("; the tokenizer was checked on a text of ", written.tokens, " tokens")
                 : ""));
  if (modelfile) modelfile->write(run);
  suggest_better_step(requested.folder, run.step, requested);
}

void check_gguf(const ExportOptions& requested) {
  if (requested.format != "folder" && requested.format != "gguf")
    throw UsageError(choice_problem("export: --format", requested.format, {"folder", "gguf"}));
  if (requested.format == "folder" && !requested.type.empty())
    throw UsageError("export: --type requires --format gguf; for a folder, use --dtype");
  if (requested.format == "gguf" && !(requested.dtype.empty() && requested.quantize.empty()))
    throw UsageError(
        "export: --dtype and --quantize apply to folders; for --format gguf, use --type");
  if (requested.format == "gguf" && requested.adapter && !requested.type.empty())
    throw UsageError(
        "export: --type does not apply to adapters, which are written in f32; leave it out");
  if (requested.modelfile && (requested.format == "folder" || requested.adapter))
    throw UsageError(
        "export: --modelfile requires a complete model in a GGUF file: give --format gguf and, for "
        "a run with adapters, --merge");
  const std::vector<std::string>& types = gguf_type_names();
  if (!requested.type.empty() && std::ranges::count(types, requested.type) == 0)
    throw UsageError(choice_problem("export: --type", requested.type, types));
}

void check_quantized_form(const std::string& form) {
  if (form != "nf4" && form != "fp4" && form != "int8")
    throw UsageError(concat("export: --quantize: got ", form, ", want nf4, fp4 or int8"));
}

void check(const ExportOptions& requested) {
  check_gguf(requested);
  if (requested.adapter && requested.merge)
    throw UsageError("export: --adapter and --merge are both given; give one");
  if (!requested.quantize.empty()) {
    if (requested.adapter || requested.merge)
      throw UsageError("export: --quantize cannot be combined with --adapter or --merge");
    check_quantized_form(requested.quantize);
  }
  if (!requested.dtype.empty() && requested.dtype != "fp32" && requested.dtype != "bf16")
    throw UsageError(concat("export: --dtype: got ", requested.dtype, ", want fp32 or bf16"));
  if (!requested.dtype.empty() && (requested.adapter || !requested.quantize.empty()))
    throw UsageError(
        "export: --dtype cannot be combined with --adapter or --quantize, which determine the "
        "dtype");
  const bool is_peft_adapter = is_adapter(requested.folder);
  const bool writes_single_file =
      requested.merge || (requested.adapter && requested.format == "gguf");
  if (!requested.base.empty() && !(is_peft_adapter && writes_single_file))
    throw UsageError(
        "export: --model is the base of a PEFT folder; it requires --merge or --adapter --format "
        "gguf");
  if (is_peft_adapter) refuse_run_weights(requested.weights, requested.folder, "a PEFT adapter");
  if (is_peft_adapter && !writes_single_file)
    throw UsageError(concat("export: ", requested.folder,
                            " is already a PEFT adapter; merge it into its base with --merge, or "
                            "write a file with --adapter --format gguf for ",
                            "llama.cpp"));
}

CommandSyntax export_syntax(ExportOptions& requested) {
  CommandSyntax syntax{
      .name = "export",
      .usage =
          "RUN|HF_DIR|PEFT_DIR --output PATH [--adapter | --merge | --quantize FORM] [options]",
      .description =
          "Exports the model of a run's newest checkpoint as a Hugging Face folder, which\n"
          "transformers and `hybrid train --init-from` can load. For a run with adapters\n"
          "(lora.rank), exports only the adapters in PEFT's format, or merges them into the\n"
          "weights; a PEFT folder can also be merged. A Hugging Face folder can be exported\n"
          "again, for example to quantize it. With --format gguf, writes one file for llama.cpp\n"
          "and Ollama.",
      .operands = {"RUN|HF_DIR|PEFT_DIR"}};
  auto add = syntax.options.add_options();
  add("output", po::value(&requested.output)->required()->value_name("PATH"),
      "Folder or file to create.");
  add("format", po::value(&requested.format)->value_name("folder|gguf"),
      "Hugging Face folder, or one GGUF file for llama.cpp. Default: gguf if PATH ends with .gguf, "
      "else folder.");
  add("type", po::value(&requested.type)->value_name("f32|f16|bf16|q8_0|q4_0"),
      "Weight type of a GGUF file. Default: bf16 for weights in bf16, f16 for others.");
  add("adapter", po::bool_switch(&requested.adapter), "Write only the adapters, in PEFT's format.");
  add("merge", po::bool_switch(&requested.merge),
      "Merge the adapters into the weights, which are read from the base's files.");
  add("model", model_value(requested.base),
      "Base model of a PEFT folder, if not the one that the folder names.");
  add("modelfile", po::bool_switch(&requested.modelfile),
      "Also write a Modelfile with the chat template, for `ollama create`, next to the GGUF file.");
  add("no-card", po::bool_switch(&requested.no_card),
      "Do not write a model card (README.md) to the folder.");
  add("quantize", po::value(&requested.quantize)->value_name("nf4|fp4|int8"),
      "Quantize matrices in the format of bitsandbytes.");
  add("dtype", po::value(&requested.dtype)->value_name("fp32|bf16"),
      "Precision of the exported weights. Default: export.dtype, or the precision of the base: "
      "bf16 for a base in bf16, fp32 for all others, including f16.");
  add_run_weights_options(syntax.options, requested.weights);
  return syntax;
}

}  // namespace

int export_command(const std::vector<std::string>& arguments) {
  ExportOptions requested;
  const auto operands = parse_command_line(export_syntax(requested), arguments);
  if (!operands) return 0;
  requested.folder = operands->front();
  const bool is_named_gguf = std::filesystem::path(requested.output).extension() == ".gguf";
  if (requested.format.empty()) requested.format = is_named_gguf ? "gguf" : "folder";
  check(requested);
  if (requested.format == "gguf") {
    write_gguf(requested);
    return 0;
  }
  if (requested.merge) {
    write_merged(requested);
    return 0;
  }
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = open_model(requested.folder, stream, requested.weights,
                                    requested.quantize.empty() ? "fp32" : requested.quantize);
  suggest_better_step(requested.folder, run.step, requested);
  if (requested.adapter) {
    export_adapter(run, requested.output, stream);
    write_card(requested, CardKind::kAdapter);
    print_output_summary(requested, run.step, "");
    return 0;
  }
  if (run.config.freezes())
    throw UsageError("export: the run has adapters (lora.rank, parts); give --adapter or --merge");
  const DType dtype = export_model(run, requested.output, dtype_of(requested), stream);
  write_card(requested, CardKind::kModel);
  print_output_summary(requested, run.step,
                       requested.quantize.empty() && dtype == DType::kBF16 ? " in bf16" : "");
  if (dynamic_cast<LanguageModel*>(run.network.get()) == nullptr) return 0;  // does not read text
  if (!run.tokenizer) {
    std::cerr << "exported without tokenizer files: " << requested.folder << " has none\n";
  } else if (!is_hugging_face(run.tokenizer->kind())) {
    std::cerr << "exported without tokenizer files: transformers cannot read a tokenizer of "
              << name_of(run.tokenizer->kind()) << "\n";
  }
  return 0;
}

}  // namespace hybrid_trainer
