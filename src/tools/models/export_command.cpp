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

/// Writes a file next to a GGUF file from which Ollama creates a model: `Modelfile`, or
/// `NAME.Modelfile` for `NAME.gguf` if another model's Modelfile exists.
class Modelfile {
 public:
  /// Throws CannotCreate if both names are taken.
  explicit Modelfile(const std::filesystem::path& gguf);

  /// Writes FROM, and if Ollama can express the run's chat template, TEMPLATE and PARAMETER stop.
  /// Reports the result in one line on standard error. Throws IoError.
  void write(const TrainedRun& run) const;

 private:
  std::filesystem::path gguf_, path_;
};

/// Returns the text in quotes, in triple quotes if it has quotes or several lines.
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

Modelfile::Modelfile(const std::filesystem::path& gguf)
    : gguf_(gguf), path_(gguf.parent_path() / "Modelfile") {
  if (!is_taken(path_)) return;
  const std::filesystem::path first = path_;
  path_ = std::filesystem::path(gguf).replace_extension("Modelfile");
  if (is_taken(path_))
    throw CannotCreate(
        concat(first.string(), " and ", path_.string(),
               ": both exist already; remove one, or choose another name for --output"));
}

void Modelfile::write(const TrainedRun& run) const {
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
    said =
        concat(" without TEMPLATE, since Ollama cannot express the chat template: ", error.what());
  }
  create_file(path_, [&](OutputFile& file) { file.write(text); });
  std::cerr << "wrote " << path_.string() << said << "\n";
}

struct ExportOptions {
  std::string folder, output, base, dtype, quantize, format, type;
  RunWeightsOption weights;
  bool adapter = false, merge = false, modelfile = false, no_card = false;
};

/// Explains how to get a better step.
std::string way_to_better_step(const RunPaths& paths) {
  if (std::filesystem::exists(paths.checkpoints() + "/best"))
    return "; --checkpoint best exports the best checkpoint that is kept";
  return " (checkpoint.keep_best=1 with training.evaluate_every_steps keeps the best step; or "
         "train with fewer steps or a lower learning rate)";
}

/// Warns if an earlier step of the run had a lower validation loss than the exported one.
void tell_of_better_step(const std::string& folder, std::int64_t step, const ExportOptions& asked) {
  const RunPaths paths{folder};
  if (!asked.weights.checkpoint.empty() || !paths.hold_a_run() ||
      !std::filesystem::exists(paths.metrics()))
    return;
  struct Measured {
    std::int64_t step = 0;
    double loss = std::numeric_limits<double>::infinity();
  };
  Measured best, last;
  for_each_record(paths.metrics(), [&](const StepRecord& record) {
    const auto& loss =
        asked.weights.average ? record.average_validation_loss : record.validation_loss;
    if (!loss || record.step > step) return;
    last = {record.step, *loss};
    if (last.loss < best.loss) best = last;
  });
  if (best.loss >= last.loss || best.step == last.step) return;
  std::cerr << "warning: the lowest validation loss, " << units::fixed(best.loss, 4)
            << ", was at step " << best.step << "; the exported weights are of step " << step
            << ", and at step " << last.step << " it was " << units::fixed(last.loss, 4)
            << way_to_better_step(paths) << "\n";
}

void write_card(const ExportOptions& asked, CardKind kind) {
  if (!asked.no_card) write_model_card(asked.folder, asked.output, kind);
}

bool is_adapter(const std::string& folder) {
  return !RunPaths{folder}.hold_a_run() && holds_adapter(folder);
}

std::optional<DType> dtype_of(const ExportOptions& asked) {
  if (asked.dtype.empty()) return {};
  return asked.dtype == "bf16" ? DType::kBF16 : DType::kF32;
}

void write_merged(const ExportOptions& asked) {
  const MergedExport merged =
      is_adapter(asked.folder)
          ? export_merged_adapter(asked.folder, asked.base, asked.output, dtype_of(asked))
          : export_merged(asked.folder, asked.output, run_weights(asked.weights), dtype_of(asked));
  write_card(asked, CardKind::kMergedModel);
  for (const std::string& warning : merged.warnings) std::cerr << "warning: " << warning << "\n";
  std::cerr << "wrote " << asked.output;
  if (merged.step > 0) std::cerr << " from step " << merged.step;  // else from a folder
  std::cerr << ", adapters merged in f32 and "
            << (merged.dtype == DType::kBF16 ? "rounded to bf16" : "kept in f32")
            << merged.change.text() << "\n";
  tell_of_better_step(asked.folder, merged.step, asked);
}

void tell_written(const ExportOptions& asked, const TrainedRun& run, const std::string& form) {
  std::cerr << "wrote " << asked.output;
  if (run.step > 0) std::cerr << " from step " << run.step;  // else from a folder
  std::cerr << form << "\n";
}

/// Opens the model with its base in f32, regardless of its format in training.
TrainedRun open_to_merge(const ExportOptions& asked, const Stream& stream) {
  if (is_adapter(asked.folder))
    return load_adapter_folder(asked.folder, "fp32", stream, model_families(), asked.base);
  return load_trained_run(asked.folder, stream, model_families(), run_weights(asked.weights),
                          "fp32");
}

/// Returns "22 tensors in q8_0, 13 tensors in f32", and why types differ from the requested one.
std::string told_of_types(const GgufExport& written) {
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

/// Throws DataError if a PEFT folder also changes other weights.
void require_adapters_alone(const std::string& folder) {
  const std::vector<std::string> beside = read_adapter_config(folder).weights_beside;
  if (!beside.empty())
    throw DataError(concat(folder, ": ", join(beside),
                           " of the adapter cannot be stored in a GGUF adapter file; merge the "
                           "adapter instead (--merge)"));
}

void write_gguf(const ExportOptions& asked) {
  std::optional<Modelfile> modelfile;
  if (asked.modelfile) modelfile.emplace(asked.output);
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = asked.merge || is_adapter(asked.folder)
                             ? open_to_merge(asked, stream)
                             : open_model(asked.folder, stream, run_weights(asked.weights), "fp32");
  if (asked.adapter) {
    if (is_adapter(asked.folder)) require_adapters_alone(asked.folder);
    export_gguf_adapter_file(run, asked.output, stream);
    return tell_written(asked, run, ": adapters in f32, for llama.cpp's --lora");
  }
  if (run.config.freezes() && !asked.merge)
    throw UsageError("export: the run has adapters (lora.rank, parts); give --adapter or --merge");
  const GgufExport written = export_gguf_file(run, asked.type, asked.output, stream);
  std::cerr << "wrote " << asked.output;
  if (run.step > 0) std::cerr << " from step " << run.step;  // else from a folder
  std::cerr << ": " << told_of_types(written) << ", " << units::bytes(written.bytes)
            << written.change.text();
  if (written.tokens > 0)
    std::cerr << "; the tokenizer was checked on a text of " << written.tokens << " tokens";
  std::cerr << "\n";
  if (modelfile) modelfile->write(run);
  tell_of_better_step(asked.folder, run.step, asked);
}

void check_gguf(const ExportOptions& asked) {
  if (asked.format != "folder" && asked.format != "gguf")
    throw UsageError(choice_problem("export: --format", asked.format, {"folder", "gguf"}));
  if (asked.format == "folder" && !asked.type.empty())
    throw UsageError("export: --type requires --format gguf; for a folder, use --dtype");
  if (asked.format == "gguf" && !(asked.dtype.empty() && asked.quantize.empty()))
    throw UsageError(
        "export: --dtype and --quantize apply to folders; for --format gguf, use --type");
  if (asked.format == "gguf" && asked.adapter && !asked.type.empty())
    throw UsageError(
        "export: --type does not apply to adapters, which are written in f32; leave it out");
  if (asked.modelfile && (asked.format == "folder" || asked.adapter))
    throw UsageError(
        "export: --modelfile requires a complete model in a GGUF file: give --format gguf and, for "
        "a run with adapters, --merge");
  const std::vector<std::string>& types = gguf_type_names();
  if (!asked.type.empty() && std::ranges::count(types, asked.type) == 0)
    throw UsageError(choice_problem("export: --type", asked.type, types));
}

void check_quantized_form(const std::string& form) {
  if (form != "nf4" && form != "fp4" && form != "int8")
    throw UsageError(concat("export: --quantize: got ", form, ", want nf4, fp4 or int8"));
}

void check(const ExportOptions& asked) {
  check_gguf(asked);
  if (asked.adapter && asked.merge)
    throw UsageError("export: --adapter and --merge are both given; give one");
  if (!asked.quantize.empty()) {
    if (asked.adapter || asked.merge)
      throw UsageError("export: --quantize cannot be combined with --adapter or --merge");
    check_quantized_form(asked.quantize);
  }
  if (!asked.dtype.empty() && asked.dtype != "fp32" && asked.dtype != "bf16")
    throw UsageError(concat("export: --dtype: got ", asked.dtype, ", want fp32 or bf16"));
  if (!asked.dtype.empty() && (asked.adapter || !asked.quantize.empty()))
    throw UsageError(
        "export: --dtype cannot be combined with --adapter or --quantize, which determine the "
        "dtype");
  const bool is_of_peft = is_adapter(asked.folder);
  const bool becomes_file = asked.merge || (asked.adapter && asked.format == "gguf");
  if (!asked.base.empty() && !(is_of_peft && becomes_file))
    throw UsageError(
        "export: --model is the base of a PEFT folder; it requires --merge or --adapter --format "
        "gguf");
  if (is_of_peft) refuse_run_weights(run_weights(asked.weights), asked.folder, "a PEFT adapter");
  if (is_of_peft && !becomes_file)
    throw UsageError(concat("export: ", asked.folder,
                            " is a PEFT adapter already; give --merge to merge it into its base, "
                            "or --adapter --format gguf for a file for ",
                            "llama.cpp"));
}

CommandSyntax export_syntax(ExportOptions& asked) {
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
  add("output", po::value(&asked.output)->required()->value_name("PATH"),
      "Folder or file to create.");
  add("format", po::value(&asked.format)->value_name("folder|gguf"),
      "Hugging Face folder, or one GGUF file for llama.cpp. Default: gguf if PATH ends with .gguf, "
      "else folder.");
  add("type", po::value(&asked.type)->value_name("f32|f16|bf16|q8_0|q4_0"),
      "Weight type of a GGUF file. Default: bf16 for weights in bf16, f16 for others.");
  add("adapter", po::bool_switch(&asked.adapter), "Write only the adapters, in PEFT's format.");
  add("merge", po::bool_switch(&asked.merge),
      "Merge the adapters into the weights, which are read from the base's files.");
  add("model", model_value(asked.base),
      "Base model of a PEFT folder, if not the one that the folder names.");
  add("modelfile", po::bool_switch(&asked.modelfile),
      "Also write a Modelfile with the chat template, for `ollama create`, next to the GGUF file.");
  add("no-card", po::bool_switch(&asked.no_card),
      "Do not write a model card (README.md) to the folder.");
  add("quantize", po::value(&asked.quantize)->value_name("nf4|fp4|int8"),
      "Quantize matrices in the format of bitsandbytes.");
  add("dtype", po::value(&asked.dtype)->value_name("fp32|bf16"),
      "Precision of the exported weights. Default: export.dtype, or the precision of the base: "
      "bf16 for a base in bf16, fp32 for all others, including f16.");
  add_run_weights_options(syntax.options, asked.weights);
  return syntax;
}

}  // namespace

int export_command(const std::vector<std::string>& arguments) {
  ExportOptions asked;
  const auto operands = parse_command_line(export_syntax(asked), arguments);
  if (!operands) return 0;
  asked.folder = operands->front();
  const bool is_named_gguf = std::filesystem::path(asked.output).extension() == ".gguf";
  if (asked.format.empty()) asked.format = is_named_gguf ? "gguf" : "folder";
  check(asked);
  if (asked.format == "gguf") {
    write_gguf(asked);
    return 0;
  }
  if (asked.merge) {
    write_merged(asked);
    return 0;
  }
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = open_model(asked.folder, stream, run_weights(asked.weights),
                                    asked.quantize.empty() ? "fp32" : asked.quantize);
  tell_of_better_step(asked.folder, run.step, asked);
  if (asked.adapter) {
    export_adapter(run, asked.output, stream);
    write_card(asked, CardKind::kAdapter);
    tell_written(asked, run, "");
    return 0;
  }
  if (run.config.freezes())
    throw UsageError("export: the run has adapters (lora.rank, parts); give --adapter or --merge");
  const DType dtype = export_model(run, asked.output, dtype_of(asked), stream);
  write_card(asked, CardKind::kModel);
  tell_written(asked, run, asked.quantize.empty() && dtype == DType::kBF16 ? " in bf16" : "");
  if (dynamic_cast<LanguageModel*>(run.network.get()) == nullptr) return 0;  // does not read text
  if (!run.tokenizer) {
    std::cerr << "without tokenizer files: " << asked.folder << " has none\n";
  } else if (run.tokenizer->kind() != TokenizerKind::kBpe) {
    std::cerr << "without tokenizer files: transformers can read only a BPE tokenizer\n";
  }
  return 0;
}

}  // namespace hybrid_trainer
