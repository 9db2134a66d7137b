#include "src/run/run_files.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/nn/text_head.h"
#include "memory/weight_copies.h"
#include "src/core/messages.h"
#include "src/files/checksum.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/files/output_file.h"
#include "src/model_files/adapters/adapter_config.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/text_data.h"
#include "src/trainer/expert_routing.h"
#include "src/trainer/run_model.h"
#include "src/trainer/trainer_checkpoints.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSampleBytes = 1 << 16, kMaxBaseConfigBytes = 1 << 20;

std::string base_file(const RunPaths& paths) { return paths.root + "/base.json"; }

void add_text(Checksum& sum, const std::string& text) { sum.add(text.data(), text.size()); }

void add_samples(Checksum& sum, const InputFile& file) {
  std::string bytes(std::min(kSampleBytes, file.bytes()), '\0');
  const std::size_t last = file.bytes() - bytes.size();
  for (const std::size_t offset : {std::size_t{0}, last / 2, last}) {
    file.read_at(bytes.data(), bytes.size(), offset);
    sum.add(bytes.data(), bytes.size());
  }
}

constexpr std::size_t kMaxDataBytes = 1 << 20;

std::string tokenizer_folder(const RunPaths& paths) { return paths.root + "/tokenizer"; }
std::string base_config_file(const RunPaths& paths) { return paths.root + "/base_config.json"; }

/// Loads a folder's tokenizer. Throws DataError if it has more tokens than the model.
void open_tokenizer(TrainedRun& run, const ModelFolder& folder) {
  run.tokenizer_folder = folder;
  if (!contains_tokenizer(folder.path())) return;
  run.tokenizer = folder.tokenizer();
  if (run.tokenizer->min_table_rows() <= run.config.data_vocabulary()) return;
  throw DataError(concat(folder.string(), ": the tokenizer has ", run.tokenizer->vocabulary_size(),
                         " tokens, but the model's embedding table has ",
                         run.config.data_vocabulary(),
                         "; give the tokenizer that the model was trained with"));
}

/// Unties the head for an adapter that trained only the head or only the token table.
void untie_head(ModelConfig& model, const fs::path& folder, const AdapterFolder& adapter,
                const ModelRegistry& registry) {
  if (!find_family(model.family, registry).has("tied_head"))
    throw DataError(concat(folder.string(), ": the adapter changes ", join(adapter.extra_weights),
                           ", but in ", model.family,
                           " the head and the token table are one weight; train an adapter without "
                           "wte and lm_head in target_modules and modules_to_save"));
  model.tied_head = false;
}

/// Sets the adapter's vocabulary size if it was trained with other tokens than the base.
void take_vocabulary(HybridTrainerConfig& config, const fs::path& folder,
                     const AdapterFolder& adapter, const ModelRegistry& registry) {
  ModelConfig& model = config.model;
  if (adapter.vocabulary == 0 || adapter.vocabulary == model.vocabulary) return;
  const auto has = [&](std::string_view end) {
    return std::ranges::any_of(adapter.extra_weights,
                               [&](const std::string& name) { return name.ends_with(end); });
  };
  if (find_family(model.family, registry).hugging_face.tied_head.empty() ||
      (!model.tied_head && !has("lm_head.weight")))
    throw DataError(concat(
        folder.string(), ": the adapter's token table has ", adapter.vocabulary,
        " rows, but its base has ", model.vocabulary,
        ", and the adapter has no head of this size; save token table and head when you train the "
        "adapter (modules_to_save), or give the base model that it was trained on"));
  model.vocabulary = adapter.vocabulary;
  config.lora.replaces_tables = true;
}

/// Returns the number of classes of the adapter's class head, or 0 if it has none.
std::int64_t classes_of(const AdapterFolder& adapter, const ModelFamily& family) {
  if (!family.is_language_model) return adapter.classes_of(family.hugging_face.classifier);
  for (const char* head : {"classifier.out_proj.", "classifier.", "score."})
    if (const std::int64_t rows = adapter.classes_of(head); rows > 0) return rows;
  return 0;
}

/// If the adapter replaces the classifier, sets the classes to the adapter's. Invents class names
/// if the adapter has none, because PEFT's own files do not store them.
void take_classes(ModelConfig& model, const AdapterFolder& adapter, const ModelFolder& base,
                  const ModelRegistry& registry) {
  const ModelFamily& family = find_family(model.family, registry);
  const std::int64_t classes = classes_of(adapter, family);
  if (classes > 0 && family.is_language_model) {
    model.language_head = false;
    if (model.pooling.empty()) model.pooling = class_pooling(base.files(), model);
    if (!adapter.labels.empty()) model.problem_type = adapter.problem_type;
  }
  if (classes > 0 && classes == std::ssize(adapter.labels)) model.labels = adapter.labels;
  if (classes < 1 || classes == std::ssize(model.labels)) return;
  model.labels.clear();
  for (std::int64_t i = 0; i < classes; ++i) model.labels.push_back({concat("LABEL_", i)});
}

/// Throws DataError if neither the base nor the adapter stores a weight of the class head.
/// transformers would initialize it at random. `others`: weights in the adapter's folder.
void require_class_head(Network& network, const ModelFolder& base, const std::string& called,
                        const std::vector<std::string>& others, const ModelConfig& model,
                        const ModelRegistry& registry) {
  // Dense modules are read from separate files. The reader of a GGUF file checks its tensors.
  if (network.text_head() == nullptr || !model.dense.empty() || base.is_gguf()) return;
  const HuggingFaceLayout layout = layout_of(model, registry);
  const auto is_held = [&](const FileTensor& part) {
    const std::string name = layout.full_name(part);
    return std::ranges::count(others, name) > 0 || base.weights().contains(name) ||
           base.weights().contains(part.name);
  };
  network.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter) || !network.text_head()->owns(parameter)) return;
    for (const FileTensor& part : parameter.in_files())
      if (!is_held(part))
        throw DataError(concat(called, ": has no tensor ", layout.full_name(part),
                               " of the class head, so its classes cannot be computed; save the ",
                               "whole head when you train it, or train a head: hybrid finetune ",
                               "--task classify"));
  });
}

/// Sets an embedding adapter's pooling, from `folder` or else the usual one.
void take_embedding(HybridTrainerConfig& config, const AdapterFolder& adapter,
                    const ModelFolder& folder) {
  ModelConfig& model = config.model;
  if (adapter.task != kEmbeddingTask || model.encoder.context > 0) return;
  model.labels.clear();
  model.pooling.clear();
  model.dense.clear();
  model.language_head = false;
  take_pipeline(folder, config);
  if (model.pooling.empty()) model.pooling = model.bidirectional ? "mean" : "last";
}

/// Returns the weight of this name in a checkpoint, or its average. For a checkpoint taken in
/// Predict, the weight is the accepted one from before the prediction.
const Tensor& accepted_weight(const State& state, const std::string& name, bool is_average) {
  if (is_average) return state.tensor(average_name(name));
  const auto snapshot = state.tensors.find("snapshot." + name);
  return snapshot == state.tensors.end() ? state.tensor("model." + name) : snapshot->second;
}

std::int64_t best_step_of(const RunPaths& paths) {
  if (const auto newest = find_newest_whole_checkpoint(paths.checkpoints())) {
    const Stream host(MemoryPool::create("host"));
    if (const auto best = best_in(load_checkpoint(*newest, host, CheckpointPart::kNumbers)))
      return best->step;
  }
  throw MissingInput(concat(paths.root,
                            " has no best checkpoint, because the run does not keep one; train or "
                            "resume it with checkpoint.keep_best=1 and ",
                            "training.evaluate_every_steps, or give --checkpoint STEP"));
}

bool holds_average(const State& state) {
  const auto first = state.tensors.lower_bound(average_name(""));
  return first != state.tensors.end() && first->first.starts_with(average_name(""));
}

void write_end_tokens(const RunPaths& paths, const RunData& data) {
  if (data.token_ids.empty() || !fs::exists(tokenizer_folder(paths))) return;
  const std::string file = tokenizer_folder(paths) + "/generation_config.json";
  const bool is_present = fs::exists(file);
  const std::string before = is_present ? read_file(file, std::size_t{1} << 20) : data.token_ids;
  std::vector<std::int32_t> ends = generation_end_tokens_in(data.base);
  ends.insert(ends.end(), data.end_tokens.begin(), data.end_tokens.end());
  const std::string after = with_end_tokens(before, ends);
  if (!is_present || after != before) replace_file(file, after);
}

/// Keeps the base's config.json, so that an export has its values even without the base.
void keep_base_config(const RunPaths& paths, const ModelFolder& base) {
  const bool has_one = !base.empty() && fs::is_regular_file(base.path() / "config.json");
  if (!has_one || fs::exists(base_config_file(paths))) return;
  replace_file(base_config_file(paths), base.files().bytes("config.json", kMaxBaseConfigBytes));
}

/// Returns the data path to record: only the name in the run's folder, because that may move.
std::string place_of_data(const RunPaths& paths, const fs::path& data) {
  if (data.empty()) return "";  // generated from the seed
  const fs::path absolute = fs::absolute(data).lexically_normal();
  const bool is_inside = absolute.parent_path() == fs::absolute(paths.root).lexically_normal();
  return is_inside ? absolute.filename().string() : absolute.string();
}

}  // namespace

std::string identity_of_base(const ModelFolder& folder) {
  Checksum sum;
  if (folder.is_gguf()) {
    for (const GgufTensor& tensor : folder.gguf().tensors())
      add_text(sum, concat(tensor.name, ' ', name_of(tensor.type), ' ', tensor.offset, '\n'));
    add_samples(sum, folder.gguf().input());
    return sum.text();
  }
  add_text(sum, folder.files().bytes("config.json", kMaxBaseConfigBytes));
  for (const SafetensorsFile& file : folder.weights().files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      add_text(sum, concat(entry.name, ' ', entry.dtype, ' ', entry.bytes, '\n'));
    }
    add_samples(sum, InputFile(file.path()));
  }
  return sum.text();
}

std::string identity_of_adapter(const fs::path& folder) {
  Checksum sum;
  for (const char* name : {kAdapterConfig, kAdapterTensors})
    add_samples(sum, InputFile(folder / name));
  return sum.text();
}

void write_run_base(const RunPaths& paths, const ModelFolder& folder) {
  const boost::json::object base{
      {"folder", fs::absolute(folder.path()).lexically_normal().string()},
      {"identity", identity_of_base(folder)}};
  replace_file(base_file(paths), json_line(base) + "\n");
}

std::optional<ModelFolder> base_of_run(const RunPaths& paths,
                                       const std::optional<ModelFolder>& given) {
  const std::string file = base_file(paths);
  const bool is_startup_file = given && !paths.contains_run();  // stopped before it was a run
  if (!fs::exists(file) || is_startup_file) return given;
  const boost::json::value value = read_json(file, {.max_bytes = 1 << 16});
  const auto text = [&](const char* key) -> std::string {
    const auto* found = value.is_object() ? value.get_object().if_contains(key) : nullptr;
    if (found == nullptr || !found->is_string())
      throw DataError(file + ": want {\"folder\": \"...\", \"identity\": \"...\"}");
    return std::string(found->get_string());
  };
  const std::string recorded_folder = text("folder");
  const ModelFolder folder = given.value_or(fs::path(recorded_folder));
  if (!folder.has_weights()) {
    throw MissingInput(concat(
        folder.string(),
        ": the base model of the run's adapters does not exist or has no weights; restore it, or "
        "resume the run with the new location of the base (train --init-from, finetune --model)"));
  }
  if (identity_of_base(folder) == text("identity")) return folder;
  throw DataError(concat(folder.string(), " is not the base model of the run's adapters (",
                         recorded_folder, " at the start): its files differ"));
}

std::string project_version() { return HT_VERSION; }

void write_run_files(const RunPaths& paths, const HybridTrainerConfig& config,
                     const RunData& data) {
  boost::json::object source{{"folder", place_of_data(paths, data.folder)},
                             {"train_tokens", data.train_tokens}};
  if (!data.checksum.empty()) source["checksum"] = data.checksum;
  if (data.now != 0) source["now"] = data.now;
  if (!data.command.empty() && data.command.size() < kMaxDataBytes / 2)
    source["command"] = data.command;
  if (!data.token_ids.empty()) source["token_ids"] = data.token_ids;
  for (const auto& [key, path] : {std::pair("base", data.base.path()),
                                  {"adapter", data.adapter},
                                  {"validation", data.validation}})
    if (!path.empty()) source[key] = fs::absolute(path).lexically_normal().string();
  replace_file(paths.data(), json_line(source) + "\n");
  const bool has_tokenizer = !data.folder.empty() || !data.tokenizer.empty();
  if (has_tokenizer && data.tokenizer.path() != tokenizer_folder(paths)) {
    const ModelFolder from = data.tokenizer.empty() ? ModelFolder(data.folder) : data.tokenizer;
    write_tokenizer_files(from.tokenizer_files(), tokenizer_folder(paths));
    write_end_tokens(paths, data);
  }
  keep_base_config(paths, data.base);
  write_run_config(paths, config);
}

void write_run_config(const RunPaths& paths, const HybridTrainerConfig& config) {
  fs::remove(paths.summary());  // written when the resumed run ended
  replace_file(paths.config(), config_json(config));
}

HybridTrainerConfig config_of_run(const RunPaths& paths) {
  HybridTrainerConfig config;
  read_config(config, paths.config());
  return config;
}

RunData data_of_run(const RunPaths& paths) {
  const std::string file = paths.data();
  const boost::json::value value = read_json(file, {.max_bytes = kMaxDataBytes});
  const auto* folder = value.is_object() ? value.get_object().if_contains("folder") : nullptr;
  if (folder == nullptr || !folder->is_string())
    throw DataError(file + ": want {\"folder\": \"...\", \"train_tokens\": ...}");
  const std::string token_ids = text_at(value, "/token_ids");
  if (!token_ids.empty() && !parse_json_text(token_ids, file + ": token_ids").is_object())
    throw DataError(concat(file, ": token_ids: got ", token_ids, ", want a JSON object as text"));
  const fs::path place(std::string(folder->get_string()));
  return {.folder = place.is_relative() && !place.empty() ? paths.root / place : place,
          .train_tokens = count_at(value, "/train_tokens"),
          .checksum = text_at(value, "/checksum"),
          .validation = text_at(value, "/validation"),
          .base = fs::path(text_at(value, "/base")),
          .adapter = text_at(value, "/adapter"),
          .now = count_at(value, "/now"),
          .token_ids = token_ids,
          .command = text_at(value, "/command")};
}

std::unique_ptr<Tokenizer> tokenizer_of_run(const RunPaths& paths) {
  if (!fs::exists(tokenizer_folder(paths))) return nullptr;
  return load_tokenizer(tokenizer_folder(paths));
}

void check_same_tokenizer(const Tokenizer* of_run, const Tokenizer* of_data, const fs::path& data) {
  if (of_run == nullptr || of_data == nullptr || of_data->has_same_tokens(*of_run)) return;
  throw DataError(concat(data.string(),
                         ": its tokenizer differs from the run's; use the run's data, or "
                         "prepare the text again with --tokenizer RUN/tokenizer"));
}

std::string other_data_message(const fs::path& here, const fs::path& own,
                               const std::string& tokens) {
  const std::string counts = tokens.empty() ? "" : concat(" (it has ", tokens, ")");
  if (fs::weakly_canonical(here) == fs::weakly_canonical(own))
    return concat(here.string(), " has changed since the run began", counts,
                  ", so the run cannot continue at its position in the data; restore the file, or "
                  "start a new run from this run's weights: hybrid export RUN --output FOLDER");
  return concat(here.string(), " is not the data that the run was trained on", counts,
                ", so the run cannot continue at its position in the data; use --data ",
                shell_path(own));
}

std::string end_of_run(const RunPaths& paths) {
  if (!fs::exists(paths.summary())) return "";
  return text_at(read_json(paths.summary()), "/end");
}

/// Returns the requested checkpoint of the run. Throws MissingInput if there is none. Throws
/// DataError if the requested checkpoint is damaged or, if the newest is requested, if all
/// checkpoints are damaged.
static FoundCheckpoint find_run_checkpoint(const RunPaths& paths, const RunWeights& weights) {
  const std::string folder = paths.checkpoints();
  if (weights.checkpoint == RunWeights::Checkpoint::kStep)
    return {.checkpoint = find_checkpoint(folder, weights.step), .warnings = {}};
  if (weights.checkpoint == RunWeights::Checkpoint::kBest)
    return {.checkpoint = find_checkpoint(folder, best_step_of(paths)), .warnings = {}};
  FoundCheckpoint found = find_newest_checkpoint(folder);
  if (found.checkpoint) return found;
  throw MissingInput(concat(paths.root,
                            " has no checkpoint yet; train it first (hybrid train --run ",
                            shell_path(paths.root), ")"));
}

static void set_frozen_format(HybridTrainerConfig& config, const std::string& form) {
  config.lora.base = form;
  for (PartConfig& part : config.parts)
    if (part.base) part.base = form;
}

TrainedRun load_trained_run(const fs::path& root, const Stream& stream,
                            const ModelRegistry& registry, const RunWeights& weights,
                            const std::optional<std::string>& frozen_form) {
  const RunPaths paths = existing_run(root.string());
  const RunData data = data_of_run(paths);
  TrainedRun run;
  run.folder = root;
  run.config = config_of_run(paths);
  run.config.validate(registry);
  const FoundCheckpoint found = find_run_checkpoint(paths, weights);
  run.warnings = found.warnings;
  run.step = found.checkpoint->step;
  run.data = data.folder;
  run.token_ids = data.token_ids;
  run.tokenizer_folder = fs::path(tokenizer_folder(paths));
  if (fs::exists(run.tokenizer_folder.path())) run.tokenizer = run.tokenizer_folder.tokenizer();
  if (frozen_form == kFileBase && !run.config.freezes())
    throw UsageError(concat(paths.root,
                            " is a run that trained all weights, so the format \"file\" does not "
                            "apply; want another format, such as nf4"));
  if (frozen_form) set_frozen_format(run.config, *frozen_form);
  const auto base = base_of_run(paths);
  run.base = base.value_or(ModelFolder());
  // A run with its own preprocessor file needs no other folder.
  run.origin = fs::exists(root / "preprocessor_config.json") ? ModelFolder(root) : data.base;
  if (run.origin.path() == run.base.path()) run.origin = run.base;
  run.sentence_folder = sentence_folder_of(data.adapter, run.origin);
  run.base_config = base_config_file(paths);
  run.network = make_run_model(run.config, base, stream, registry);
  const Stream host(MemoryPool::create("host"));
  const bool in_place = stream.device().type == DeviceType::kCpu;
  const bool is_average = weights.is_average();
  const State state =
      load_checkpoint(*found.checkpoint, in_place ? stream : host,
                      is_average ? CheckpointPart::kAverage : CheckpointPart::kWeights);
  if (is_average && !holds_average(state)) {
    throw MissingInput(concat(found.checkpoint->path, " has no averaged weights: ",
                              "training.average_weights is ", run.config.training.average_weights));
  }
  run.network->visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable()) return;  // keeps its initial value
    const Tensor& saved = accepted_weight(state, parameter.name(), is_average);
    if (saved.shape() != parameter.shape()) {
      throw DataError(concat(found.checkpoint->path, ": ", parameter.name(), " is ",
                             saved.shape().text(), ", want (from the run's config) ",
                             parameter.shape().text()));
    }
    if (in_place) {
      parameter.set_storage(std::make_unique<ResidentWeight>(saved));
    } else {
      wait_for_copy(parameter.master_in_place(), saved, stream);
    }
  });
  load_selection_biases(*run.network, state, stream);
  if (frozen_form && !run.config.freezes()) store_all_frozen(*run.network, *frozen_form, stream);
  if (frozen_form == kFileBase) run.network->round_inputs(true);
  return run;
}

TrainedRun load_hugging_face_folder(const ModelFolder& folder, const std::string& form,
                                    const Stream& stream, const ModelRegistry& registry,
                                    const std::string& home) {
  TrainedRun opened;
  opened.folder = folder.path();
  opened.config.model = read_hugging_face_model_config(folder, 0, registry);
  take_text_task(folder, opened.config);
  opened.config.exported.dtype =
      dtype_of_hugging_face_weights(folder) == DType::kBF16 ? "bf16" : "fp32";
  opened.places =
      std::make_shared<MemoryPlaces>(MemoryConfig{}, stream, make_host_pool(stream.device()));
  opened.network =
      make_frozen_model(opened.config.model, folder, {.base = frozen_format(folder, form)}, stream,
                        opened.places->at(home), registry);
  require_class_head(*opened.network, folder, folder.string(), {}, opened.config.model, registry);
  if (form == kFileBase) opened.network->round_inputs(true);
  open_tokenizer(opened, folder);
  opened.token_ids = token_ids_in(folder);
  opened.origin = opened.sentence_folder = folder;
  opened.base_config = folder.path() / "config.json";
  return opened;
}

TrainedRun load_adapter_folder(const fs::path& folder, const std::string& form,
                               const Stream& stream, const ModelRegistry& registry,
                               const ModelFolder& base) {
  const AdapterFolder adapter = read_adapter_config(folder);
  TrainedRun run;
  run.base = base.empty() ? ModelFolder(adapter.base) : base;
  if (!fs::exists(run.base.path() / "config.json") && !run.base.is_gguf()) {
    throw MissingInput(concat(folder.string(), ": the adapter's base is \"", run.base.string(),
                              "\", which is not a folder on this machine; set "
                              "base_model_name_or_path in adapter_config.json to the folder of the "
                              "base, or merge the adapter into its base: hybrid export ",
                              shell_path(folder), " --merge --model BASE --output MERGED",
                              download_hint(run.base.path())));
  }
  run.folder = run.base.path();
  run.origin = run.base;
  run.base_config = run.base.path() / "config.json";
  run.config.model = read_hugging_face_model_config(run.base, 0, registry);
  run.config.lora = adapter.config;
  run.config.lora.base = frozen_format(run.base, form);
  if (adapter.unties_head) untie_head(run.config.model, folder, adapter, registry);
  take_vocabulary(run.config, folder, adapter, registry);
  take_classes(run.config.model, adapter, run.base, registry);
  const ModelFolder own(folder);
  run.sentence_folder = sentence_folder_of(own, run.base);
  take_embedding(run.config, adapter, run.sentence_folder);
  try {
    run.network = adapter.config.is_on()
                      ? make_run_model(run.config, run.base, stream, registry)
                      : make_frozen_model(run.config.model, run.base, run.config.lora, stream,
                                          stream, registry);
  } catch (const ConfigError& error) {
    throw DataError(concat(folder.string(), ": ", error.what()));
  }
  read_adapter_weights(folder, *run.network, run.config.model, stream, registry,
                       [&](Parameter& parameter, const Tensor& values) {
                         store_frozen(parameter, values, run.config.lora.base, stream);
                       });
  require_class_head(*run.network, run.base, folder.string(), adapter.extra_weights,
                     run.config.model, registry);
  if (run.config.pools()) take_text_task(run.base, run.config, own);
  if (form == kFileBase) run.network->round_inputs(true);
  open_tokenizer(run, adapter_tokenizer(own, run.base));
  run.token_ids = token_ids_in(run.base);
  const std::vector<std::int32_t> ends = end_token_ids_in(own),
                                  of_base = end_token_ids_in(run.base);
  std::ranges::set_difference(ends, of_base, std::back_inserter(run.end_tokens));
  if (!run.end_tokens.empty()) run.token_ids = with_end_tokens(run.token_ids, run.end_tokens);
  return run;
}

ModelFolder adapter_tokenizer(const ModelFolder& adapter, const ModelFolder& base) {
  return contains_tokenizer(adapter.path()) ? adapter : base;
}

ModelFolder sentence_folder_of(const ModelFolder& adapter, const ModelFolder& base) {
  return !adapter.empty() && has_sentence_pipeline(adapter) ? adapter : base;
}

GenerationKeys generation_keys_of(const TrainedRun& run) {
  return read_generation_keys({run.tokenizer_folder, run.base, run.origin});
}

DType export_dtype(const TrainedRun& run) {
  const std::string& asked = run.config.exported.dtype;
  if (asked == "auto" && !run.base.empty()) return dtype_of_hugging_face_weights(run.base);
  return asked == "bf16" ? DType::kBF16 : DType::kF32;
}

}  // namespace hybrid_trainer
