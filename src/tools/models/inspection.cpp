#include "src/tools/models/inspection.h"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <numeric>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "src/core/messages.h"
#include "src/data/chat/chat_template.h"
#include "src/files/checkpoint.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/model_folder.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/tensorboard_sink.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

std::string scalar_text(json::string_view key, const json::value& value);

std::string list_text(const json::array& array) {
  std::string text = "[";
  for (const json::value& item : array)
    text += (text.size() > 1 ? ", " : "") + scalar_text("", item);
  return text + "]";
}

std::string scalar_text(json::string_view key, const json::value& value) {
  if (value.is_null()) return key.ends_with("loss") ? "not measured" : "none";
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "yes" : "no";
  if (value.is_array()) return list_text(value.get_array());
  if (value.is_double()) {
    std::ostringstream out;
    out.precision(5);
    out << value.get_double();
    return out.str();
  }
  if (value.is_object()) return json::serialize(value);
  if (key.ends_with("bytes") && !(value.is_int64() && value.get_int64() < 0))
    return units::bytes(value.to_number<std::size_t>());
  return value.is_int64() ? units::grouped(value.get_int64()) : json::serialize(value);
}

bool is_table(const json::value& value) {
  const json::array* const rows = value.if_array();
  return rows != nullptr && !rows->empty() &&
         std::ranges::all_of(*rows, [](const json::value& row) { return row.is_object(); });
}

/// Returns the key for display; names in a GGUF file such as "general.file_type" stay unchanged.
std::string key_text(json::string_view key) {
  std::string text(key);
  if (text.find('.') != text.npos) return text;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

constexpr std::size_t kWidest = 100;  // column width: names from files may be much longer

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// Formats objects with the same keys as rows of aligned columns, without a heading.
std::string table_text(const json::array& rows, const std::string& indent) {
  std::vector<std::size_t> widths(rows.front().get_object().size(), 0);
  const auto visit = [&](const auto& cell) {
    for (const json::value& row : rows) {
      std::size_t column = 0;
      for (const auto& [key, value] : row.get_object()) cell(column++, scalar_text(key, value));
    }
  };
  visit([&](std::size_t column, const std::string& text) {
    if (column < widths.size())
      widths[column] = std::max(widths[column], std::min(text.size(), kWidest));
  });
  std::string lines;
  visit([&](std::size_t column, const std::string& text) {
    const bool last = column + 1 >= widths.size();
    lines += (column == 0 ? indent : "  ") + (last ? text + "\n" : padded(text, widths[column]));
  });
  return lines;
}

/// Formats an object as lines "key value". Nested objects are indented, and arrays of objects have
/// a line per object. Numbers whose key ends in "bytes" get a unit.
std::string json_as_text(const json::object& object, const std::string& indent = "") {
  std::size_t width = 0;
  for (const auto& [key, value] : object) {
    if (!value.is_object() && !is_table(value)) width = std::max(width, key.size());
  }
  std::string text;
  for (const auto& [key, value] : object) {
    const std::string name = indent + key_text(key);
    if (value.is_object()) {
      text += name + "\n" + json_as_text(value.get_object(), indent + "  ");
    } else if (is_table(value)) {
      text += name + "\n" + table_text(value.get_array(), indent + "  ");
    } else {
      text += padded(name, indent.size() + std::min(width, kWidest)) + "  " +
              scalar_text(key, value) + "\n";
    }
  }
  return text;
}

constexpr std::size_t kShown = 4;          // elements of an array
constexpr std::size_t kLongestText = 200;  // characters of a value

json::value shown(const std::string& text) {
  return json::value(text.size() <= kLongestText ? text : text.substr(0, kLongestText) + "…");
}
template <class T>
json::value shown(const T& number) {
  return json::value(number);
}
template <class T>
json::value shown(const std::vector<T>& values) {
  json::array first;
  for (std::size_t i = 0; i < std::min(values.size(), kShown); ++i)
    first.push_back(shown(static_cast<const T&>(values[i])));
  return json::object{{"length", values.size()}, {"first", std::move(first)}};
}

json::object inspect_gguf(const std::filesystem::path& path) {
  const GgufFile file(path);
  json::object values;
  for (const auto& [key, value] : file.values())
    values[key] = std::visit([](const auto& content) { return shown(content); }, value.content);
  json::array tensors;
  std::int64_t elements = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    json::array shape;
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
    tensors.push_back(json::object{{"name", tensor.name},
                                   {"dtype", name_of(tensor.type)},
                                   {"shape", std::move(shape)},
                                   {"bytes", tensor.bytes()}});
    elements += tensor.shape.elements();
  }
  return {{"kind", "gguf"},
          {"path", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"elements", elements},
          {"values", std::move(values)},
          {"tensors", std::move(tensors)}};
}

namespace fs = std::filesystem;

/// Describes the tensors of a file, and returns the number of their elements.
std::int64_t append_tensors(json::array& tensors, const SafetensorsFile& file) {
  std::int64_t elements = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    elements += std::accumulate(entry.shape.begin(), entry.shape.end(), std::int64_t{1},
                                std::multiplies<>());
    tensors.push_back(json::object{{"name", entry.name},
                                   {"dtype", entry.dtype},
                                   {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                                   {"bytes", entry.bytes}});
  }
  return elements;
}

json::object inspect_safetensors(const fs::path& path) {
  const SafetensorsFile file(path.string());
  json::array tensors;
  const std::int64_t elements = append_tensors(tensors, file);
  json::object metadata;
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  return {{"kind", "safetensors"},           {"path", path.string()},
          {"bytes", fs::file_size(path)},    {"elements", elements},
          {"metadata", std::move(metadata)}, {"tensors", std::move(tensors)}};
}

json::object inspect_shard(const fs::path& path) {
  constexpr std::int64_t kPiece = 1 << 20;
  constexpr std::size_t kShown = 16;
  const TokenShard shard(path);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(kPiece, shard.tokens())));
  json::array first;
  std::int64_t largest = -1;
  for (std::int64_t at = 0; at < shard.tokens(); at += kPiece) {
    const std::span<std::int32_t> piece(
        tokens.data(), static_cast<std::size_t>(std::min(kPiece, shard.tokens() - at)));
    shard.read(at, piece);
    for (std::size_t i = 0; at == 0 && i < std::min(kShown, piece.size()); ++i)
      first.push_back(piece[i]);
    largest = std::max<std::int64_t>(largest, *std::max_element(piece.begin(), piece.end()));
  }
  return {{"kind", "token_shard"},
          {"path", path.string()},
          {"bytes", fs::file_size(path)},
          {"tokens", shard.tokens()},
          {"bits_per_token", 8 * shard.bytes_per_token()},
          {"largest_token", largest},
          {"first_tokens", std::move(first)}};
}

json::object inspect_data(const fs::path& path) {
  const auto info = read_data_info(path);
  require(info.has_value(), "inspect: no data.json");
  return {{"kind", "data"},
          {"path", path.string()},
          {"tokenizer", info->tokenizer},
          {"vocabulary_size", info->vocabulary_size},
          {"train_tokens", info->train_tokens},
          {"validation_tokens", info->validation_tokens},
          {"train_bytes", info->train_bytes},
          {"validation_bytes", info->validation_bytes},
          {"documents", info->documents}};
}

/// Describes the tokenizer of a model folder, or the reason why it cannot be read. Returns null if
/// there is none.
json::value tokenizer_in(const ModelFolder& folder) {
  if (!contains_tokenizer(folder.path())) return nullptr;
  try {
    const auto tokenizer = folder.tokenizer();
    return json::object{{"kind", name_of(tokenizer->kind())},
                        {"vocabulary_size", tokenizer->vocabulary_size()}};
  } catch (const Error& error) {
    return json::object{{"kind", nullptr}, {"error", error.what()}};
  }
}

/// Adds the model that a folder's config.json describes, or the reason why it cannot be used.
void describe_model(json::object& found, const ModelFolder& folder) {
  try {
    const ModelConfig model = read_hugging_face_model_config(folder, 0);
    found["family"] = find_family(model.family).title;
    found["supported"] = true;
    found["model"] = json::parse(config_json(model));
    const std::string form = quantization_of_hugging_face(folder);
    if (!form.empty()) found["quantization"] = form;
  } catch (const DataError& error) {
    found["supported"] = false;
    found["problem"] = error.what();
  }
}

json::value chat_template_in(const ModelFolder& folder) {
  try {
    return folder.chat().chat_template.has_value();
  } catch (const DataError& error) {
    return json::object{{"error", error.what()}};
  }
}

json::object inspect_adapter(const fs::path& path) {
  json::object found{{"kind", "adapter"}, {"path", path.string()}};
  try {
    const AdapterFolder adapter = read_adapter_config(path);
    found["base"] = adapter.base;
    found["supported"] = true;
    found["lora"] = json::object{{"rank", adapter.config.rank},
                                 {"alpha", adapter.config.alpha},
                                 {"dropout", adapter.config.dropout},
                                 {"targets", adapter.config.targets},
                                 {"variant", adapter.config.variant}};
  } catch (const DataError& error) {
    found["supported"] = false;
    found["problem"] = error.what();
  }
  for (auto& [key, value] : inspect_safetensors(path / kAdapterTensors))
    found.emplace(key, std::move(value));
  return found;
}

json::object inspect_hugging_face(const fs::path& path) {
  const ModelFolder folder(path);
  json::array tensors;
  std::uintmax_t bytes = 0;
  std::int64_t elements = 0;
  for (const SafetensorsFile& file : folder.weights().files()) {
    elements += append_tensors(tensors, file);
    bytes += fs::file_size(file.path());
  }
  json::object found{{"kind", "hugging_face"}, {"path", path.string()}};
  describe_model(found, folder);
  found["tokenizer"] = tokenizer_in(folder);
  found["chat_template"] = chat_template_in(folder);
  found["bytes"] = bytes;
  found["elements"] = elements;
  found["tensors"] = std::move(tensors);
  return found;
}

json::object inspect_checkpoint(const fs::path& path) {
  const CheckpointInfo info = read_checkpoint_info(path.string());
  const std::string damage = checkpoint_damage(info);
  json::array files;
  for (const auto& [name, digest] : info.files) {
    const fs::path file = path / name;
    json::value tensors;
    if (damage.empty() && file.extension() == ".safetensors")
      tensors = SafetensorsFile(file.string()).entries().size();
    files.push_back(json::object{{"name", name},
                                 {"bytes", digest.bytes},
                                 {"tensors", tensors},
                                 {"checksum", digest.checksum}});
  }
  return {{"kind", "checkpoint"},
          {"path", path.string()},
          {"step", info.step},
          {"state", damage.empty() ? "sound" : "damaged: " + damage},
          {"written_by", "version " + info.project_version},
          {"bytes", info.bytes()},
          {"files", std::move(files)}};
}

/// Lists the checkpoints of a folder by step, according to their manifests. Damaged checkpoints
/// have null values.
json::array checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    if (entry.path().filename().string().starts_with("step-")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  json::array checkpoints;
  for (const fs::path& folder : folders) {
    try {
      const CheckpointInfo info = read_checkpoint_info(folder.string());
      checkpoints.push_back(
          json::object{{"path", folder.string()}, {"step", info.step}, {"bytes", info.bytes()}});
    } catch (const DataError&) {
      checkpoints.push_back(
          json::object{{"path", folder.string()}, {"step", nullptr}, {"bytes", nullptr}});
    }
  }
  return checkpoints;
}

/// Returns the run's best checkpoint according to checkpoints/best, or null if it has none.
json::value best_checkpoint_in(const fs::path& folder) {
  const fs::path file = folder / "best";
  if (!fs::is_regular_file(file)) return nullptr;
  std::string name = read_file(file.string(), 1 << 8);
  name.erase(name.find_last_not_of(" \n") + 1);
  return json::string((folder / name).string());
}

json::object inspect_shortage(const fs::path& path) {
  json::object found{{"kind", "out_of_memory"}, {"path", path.string()}};
  const json::value value = read_json(path);
  if (!value.is_object()) throw DataError(path.string() + ": want a JSON object");
  for (const auto& [key, part] : value.get_object()) found[key] = part;
  return found;
}

json::value adapter_of(const HybridTrainerConfig& config) {
  if (!config.lora.is_on()) return nullptr;
  return json::object{{"rank", config.lora.rank},
                      {"alpha", config.lora.alpha},
                      {"targets", config.lora.targets},
                      {"base_precision", config.lora.base}};
}

void add_training(json::object& found, const RunPaths& paths, const HybridTrainerConfig& config) {
  const RunData data = data_of_run(paths);
  found["command"] = json_or_null(data.command);
  found["base"] = json_or_null(data.base.string());
  found["data"] = json_or_null(data.folder.string());
  found["validation_data"] = json_or_null(data.validation.string());
  found["method"] = method_of_run(config);
  found["adapter"] = adapter_of(config);
  found["batch"] = json::object{{"size", config.data.batch_size},
                                {"micro_batches", config.gradient_accumulation.micro_batches},
                                {"sequence_length", config.data.sequence_length}};
  found["learning_rate"] = config.optimizer.learning_rate;
}

json::object inspect_run(const RunPaths& paths) {
  HybridTrainerConfig config;
  read_config(config, paths.config());
  RunSummary summary;
  if (fs::exists(paths.metrics())) {
    for_each_record(paths.metrics(), [&](const StepRecord& record) { summary.add(record); });
  }
  json::object phases;
  for (const Phase phase : kAllPhases) {
    const PhaseUse& use = summary.phase(phase);
    phases[name_of(phase)] = json::object{
        {"steps", use.steps}, {"seconds", use.sum.seconds}, {"peak_bytes", use.peak_bytes}};
  }
  json::value shortage;
  if (fs::exists(paths.shortage())) shortage = paths.shortage();
  json::object found{{"kind", "run"}, {"path", paths.root}};
  if (fs::exists(paths.root + "/data.json")) add_training(found, paths, config);
  const json::object so_far{
      {"out_of_memory", std::move(shortage)},
      {"steps", summary.steps},
      {"steps_planned", config.training.steps},
      {summary.counts_examples ? "examples" : "tokens", summary.sum.tokens},
      {"seconds", summary.total_seconds()},
      {"initial_validation_loss", json_or_null(summary.sum.initial_validation_loss)},
      {"last_train_loss", json_or_null(summary.final_train_loss)},
      {"last_validation_loss", json_or_null(summary.final_validation_loss)},
      {"objective", config.objective},
      {"optimizer", config.optimizer.name},
      {"model", json::parse(config_json(config.model))},
      {"phases", std::move(phases)},
      {"best_checkpoint", best_checkpoint_in(paths.checkpoints())},
      {"checkpoints", checkpoints_in(paths.checkpoints())}};
  found.insert(so_far.begin(), so_far.end());
  return found;
}

json::object inspect_folder(const fs::path& path) {
  const RunPaths run{path.string()};
  if (run.contains_run()) return inspect_run(run);
  if (fs::exists(path / "manifest.json")) return inspect_checkpoint(path);
  if (fs::exists(path / "data.json")) return inspect_data(path);
  if (holds_adapter(path)) return inspect_adapter(path);
  if (ModelFolder(path).is_model()) return inspect_hugging_face(path);
  if (json::array found = checkpoints_in(path); !found.empty())
    return {{"kind", "checkpoints"}, {"path", path.string()}, {"checkpoints", std::move(found)}};
  throw DataError(concat(
      path.string(), ": does not contain a run, checkpoint, data, adapter or Hugging Face model"));
}

json::object inspect_any(const fs::path& path) {
  if (!fs::exists(path)) throw MissingInput(path.string() + ": does not exist");
  if (fs::is_directory(path)) return inspect_folder(path);
  if (path.extension() == ".safetensors") return inspect_safetensors(path);
  if (path.extension() == ".gguf" || GgufFile::is_one(path)) return inspect_gguf(path);
  if (path.extension() == ".bin") return inspect_shard(path);
  if (path.filename() == "oom.json") return inspect_shortage(path);
  throw DataError(
      concat(path.string(),
             ": want a folder, a .safetensors or .gguf file, a token shard (.bin) or a run's "
             "oom.json; for a file of examples, use `hybrid rows FILE --model MODEL`"));
}

}  // namespace

Inspection inspect(const fs::path& path) {
  const json::object found = inspect_any(path);
  return {pretty_json(found), json_as_text(found)};
}

Inspection inspect_digest(const fs::path& path) {
  if (!fs::exists(path)) throw MissingInput(path.string() + ": does not exist");
  if (!fs::exists(path / "manifest.json")) {
    throw DataError(concat(path.string(), " is not a checkpoint; --digest requires one, such as ",
                           "RUN/checkpoints/step-0000000020"));
  }
  const CheckpointInfo info = read_checkpoint_info(path.string());
  const CheckpointDigest digest = digest_of(info);
  json::object tensors;
  std::string text;
  for (const TensorDigest& tensor : digest.tensors) {
    tensors[tensor.name] = tensor.checksum;
    text += concat(tensor.checksum, "  ", tensor.name, "\n");
  }
  text += concat(digest.all, "  all ", digest.tensors.size(), " tensors\n");
  const json::object found{{"kind", "digest"},
                           {"path", path.string()},
                           {"step", info.step},
                           {"tensors", std::move(tensors)},
                           {"all", digest.all}};
  return {pretty_json(found), std::move(text)};
}

/// Returns a folder's run paths. Throws MissingInput, or DataError if the folder is not a run.
static RunPaths run_at(const fs::path& path) {
  if (!fs::exists(path)) throw MissingInput(path.string() + ": does not exist");
  RunPaths run{path.string()};
  if (run.contains_run()) return run;
  throw DataError(
      concat(path.string(), ": does not contain a run; want a folder that was given as --run"));
}

Inspection write_events_of(const fs::path& path, const fs::path& folder) {
  const RunPaths run = run_at(path);
  const std::string settings = read_file(run.config(), std::size_t{1} << 24);
  const std::int64_t steps = write_tensorboard(folder, run.metrics(), settings);
  const json::object found{{"kind", "tensorboard"},
                           {"path", path.string()},
                           {"folder", folder.string()},
                           {"steps", steps}};
  return {pretty_json(found),
          concat("wrote ", steps, steps == 1 ? " step" : " steps", " to ", folder.string(),
                 "; show them with: tensorboard --logdir ", folder.string(), "\n")};
}

Inspection inspect_experts(const fs::path& path) {
  const RunPaths run = run_at(path);
  StepRecord last;
  RoutingFlips flips;
  for_each_record(run.metrics(), [&](const StepRecord& record) {
    if (!record.experts.empty()) last = record;
    if (record.routing_flips) flips.add(*record.routing_flips);
  });
  if (last.experts.empty())
    throw DataError(concat(path.string(),
                           ": the run has no records of experts, because its model has no experts "
                           "or no step is completed"));
  json::object found{{"kind", "experts"}, {"step", last.step}};
  const json::value loads = json::parse(json_text_of(last.experts));
  for (const auto& [key, value] : loads.get_object()) found[key] = value;
  std::string text = concat("step ", last.step, "\n", text_of(last.experts));
  if (flips.steps > 0) {
    found["routing_flips"] = {{"steps", flips.steps}, {"mean", flips.mean()}, {"most", flips.most}};
    text += concat("choices that the routers' updates changed since Predict began: ", flips.text(),
                   "\n");
  }
  return {pretty_json(found), std::move(text)};
}

}  // namespace hybrid_trainer
