#include "src/model_files/hugging_face/hugging_face.h"

#include <algorithm>

#include "hybrid_trainer/models/decoder.h"
#include "src/core/messages.h"
#include "src/files/foreign_files.h"
#include "src/files/output_file.h"
#include "src/files/text.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/exported_tensors.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/module_weights.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kHead = "lm_head.weight";

void write_files(Network& network, const ModelConfig& model, const OriginFolder& origin,
                 const Tokenizer* tokenizer, DType dtype, const std::string& token_ids,
                 const std::string& folder, const Stream& stream, const fs::path& base_config,
                 const ModelRegistry& registry) {
  const auto end_of_text = tokenizer == nullptr ? std::nullopt : tokenizer->end_of_text();
  const std::string form = quantization_of(network);
  if (!form.empty()) dtype = unquantized_dtype(network, stream);
  const auto written = [&](const ModelConfig& of_model) {
    return hugging_face_config(of_model, origin.layout(), end_of_text, dtype, form, token_ids);
  };
  json::object config = written(model);
  if (fs::exists(base_config) && !origin.is_part())
    config = config_over_base(
        config, python_object_in(base_config.parent_path(), base_config.filename().string()),
        base_config.string(), written, registry);
  replace_file(folder + "/config.json", typed_pretty_json(origin.config_around(config)));
  if (origin.layout().classifier.empty()) write_token_files(tokenizer, model, token_ids, folder);
  origin.copy_processors(folder);
  std::vector<NamedTensor> tensors =
      exported_tensors(network, model.experts.count, origin, dtype, stream);
  const auto modules = std::ranges::stable_partition(
      tensors, [](const NamedTensor& tensor) { return !is_of_module(tensor.name); });
  write_module_weights({modules.begin(), modules.end()}, folder);
  tensors.erase(modules.begin(), modules.end());
  write_safetensors(folder + "/model.safetensors", std::move(tensors), {{"format", "pt"}},
                    origin.carried());
}

bool equal(const HuggingFaceWeights& weights, const std::string& a, const std::string& b) {
  const SafetensorsFile &of_a = weights.file_of(a), &of_b = weights.file_of(b);
  const SafetensorsEntry &x = of_a.entry(a), &y = of_b.entry(b);
  if (x.shape != y.shape || x.dtype != y.dtype || x.bytes != y.bytes) return false;
  constexpr std::size_t kChunk = std::size_t{1} << 22;
  std::string part_a(kChunk, '\0'), part_b(kChunk, '\0');
  for (std::size_t at = 0; at < x.bytes; at += kChunk) {
    const std::size_t bytes = std::min(kChunk, x.bytes - at);
    of_a.read_bytes(a, at, part_a.data(), bytes);
    of_b.read_bytes(b, at, part_b.data(), bytes);
    if (part_a != part_b) return false;
  }
  return true;
}

/// Returns the nearest name, or "" if only numbers differ: a layer or an expert is then missing.
std::string misspelt(const std::string& name, const std::vector<std::string>& known) {
  const auto without_numbers = [](std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  };
  const std::string nearest = nearest_name(name, known);
  return without_numbers(nearest) == without_numbers(name) ? "" : nearest;
}

void check_wanted(const HuggingFaceWeights& weights, const std::set<std::string>& wanted) {
  std::vector<std::string> left;
  for (const SafetensorsFile& file : weights.files()) {
    for (const SafetensorsEntry& entry : file.entries())
      if (!wanted.contains(entry.name)) left.push_back(entry.name);
  }
  for (const std::string& name : wanted) {
    if (weights.contains(name)) continue;
    const std::string nearest = misspelt(name, left);
    throw DataError(concat(
        weights.path(), ": has no tensor \"", name, "\", which config.json requires; ",
        nearest.empty() ? "copy the folder again, or give the config.json that it was written with"
                        : "did you mean " + nearest + "?"));
  }
}

/// A weight that is missing in the folder: zeros, or normal numbers that depend on its name.
class NewWeight final : public FolderWeight {
 public:
  explicit NewWeight(const Parameter& parameter, bool is_random = false)
      : FolderWeight(parameter.shape()), name_(parameter.name()), is_random_(is_random) {}
  void read(const Tensor& to) const override {
    if (!is_random_) return fill_zero(to, host_stream());
    Parameter random(name_, shape(), Role::kMatrix, std::make_unique<ResidentWeight>(to));
    initialize_normal(random, kNewDeviation, 0, host_stream());
  }
  bool is_quantized() const override { return false; }
  std::vector<QuantizedRows> quantized(const Stream&) const override { return {}; }

 private:
  static constexpr double kNewDeviation = 0.02;  // transformers' initializer_range
  std::string name_;
  bool is_random_;
};

/// Names of tensors with the names of the tensors that they must equal.
using Copies = std::map<std::string, std::string>;

bool is_of_text_head(const std::string& name) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"classifier.", "pre_classifier.", "score.", "qa_outputs."},
      [&](const char* begin) { return name.starts_with(begin); });
}

void refuse_classifier(const HuggingFaceWeights& weights) {
  for (const SafetensorsFile& file : weights.files())
    for (const SafetensorsEntry& entry : file.entries())
      if (is_of_text_head(entry.name))
        throw DataError(concat(file.path(), ": the tensor ", entry.name.substr(0, 200),
                               " is the head of a classifier, which does not predict tokens; train "
                               "it with --task, or give the folder of its base model"));
}

/// Checks that every tensor of the folder is wanted, ignored or a copy.
void check_names(const HuggingFaceWeights& weights, const std::set<std::string>& wanted,
                 const Copies& copies, const HuggingFaceLayout& layout, const ModelConfig& model) {
  const bool has_head = model.language_head, pools = !model.pooling.empty();
  const auto begins_with = [](const std::string& name, const std::vector<std::string>& all) {
    return std::ranges::any_of(all, [&](auto& begin) { return name.starts_with(begin); });
  };
  const auto is_ignored = [&](const std::string& name) {
    return (!layout.classifier.empty() && name.starts_with(layout.classifier)) ||
           std::ranges::any_of(layout.ignored, [&](auto& end) { return name.ends_with(end); }) ||
           !layout.carried_name(name).empty() ||
           (!has_head && (name == kHead || begins_with(name, layout.head))) ||
           (pools && is_of_text_head(name));
  };
  if (layout.classifier.empty() && !pools) refuse_classifier(weights);
  check_wanted(weights, wanted);
  for (const SafetensorsFile& file : weights.files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (wanted.count(entry.name) || is_ignored(entry.name)) continue;
      const auto copy = copies.find(entry.name);
      if (copy == copies.end() || copy->second.empty()) {
        const std::string nearest = misspelt(entry.name, {wanted.begin(), wanted.end()});
        throw DataError(concat(file.path(), ": the tensor ", entry.name,
                               " does not belong to the model that config.json describes; ",
                               nearest.empty()
                                   ? "give the config.json that the folder was written with"
                                   : "did you mean " + nearest + "?"));
      }
      if (!equal(weights, entry.name, copy->second)) {
        throw DataError(concat(file.path(), ": ", entry.name, " differs from ", copy->second,
                               "; only ", entry.name == kHead ? "a head" : "a table",
                               " that is tied to the token table can be read"));
      }
    }
  }
}

/// Throws DataError naming each size that differs. Compares the window only for families whose
/// folders store it. Ignores block patterns and settings of rotary positions.
void check_sizes(const ModelConfig& theirs, const ModelConfig& ours, const ModelFamily& family,
                 const std::string& folder, TokenTables tables) {
  const HuggingFaceLayout& layout = family.hugging_face;
  const bool rotates = family.has("rope_scaling");
  std::string problems;
  const auto in_folder = texts_of_keys(theirs), wanted = texts_of_keys(ours);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [key, value] = wanted[i];
    const bool is_training_key =
        key == "dropout" || key == "initializer_range" || key == "experts.balance_loss" ||
        key == "experts.z_loss" || key == "experts.bias_rate" || key == "encoder.source_length" ||
        key.starts_with("attention_pattern.") || key == "labels" || key == "pooling" ||
        key == "dense" || key == "problem_type" || (key == "window" && !layout.has_window_key);
    const bool is_position_key = rotates && (key == "context" || key.starts_with("rope_scaling."));
    const bool is_replaced = tables == TokenTables::kReplaced && key == "vocabulary";
    const bool is_copied = key == "tied_head" && !ours.tied_head;
    const bool is_dropped = key == "language_head" && !ours.language_head;
    const bool are_letters = key == "mixers" || key == "window_layers" || key == "experts.layers";
    // Equal models may have different periods.
    if (is_training_key || is_position_key || is_replaced || is_copied || is_dropped ||
        in_folder[i].second == value)
      continue;
    if (are_letters && repeated(in_folder[i].second, theirs.layers) == repeated(value, ours.layers))
      continue;
    problems += concat("\nmodel.", key, ": the folder has ", in_folder[i].second,
                       ", the configuration has ", value);
  }
  if (!problems.empty()) throw DataError(concat(folder, " contains another model:", problems));
}

/// Warns about heads whose e^A_log exceeds f32, so that they reset their state at each token.
void warn_of_endless_decay(const std::string& folder, const std::string& name,
                           const FolderWeight& weight) {
  constexpr double kMaxLogRate = 88.7;  // f32 overflows from e^88.73 on
  if (!name.ends_with("A_log")) return;
  const Tensor rates = weight.values();
  const float* const begin = rates.data<float>();
  const auto count = std::count_if(begin, begin + rates.elements(),
                                   [](double rate) { return rate > kMaxLogRate; });
  if (count > 0)
    warn(folder,
         concat(name, " is above ", kMaxLogRate, " in ", count, " of ", rates.elements(),
                " heads: the decay overflows, so these heads do not remember earlier tokens"));
}

/// Returns whether the files have a separate head although config.json ties it. This happens after
/// merging adapters that trained the head or the token table. transformers 5 also unties it.
bool has_own_head(const ModelFolder& folder, const HuggingFaceLayout& layout) {
  if (layout.tied_head.empty() || folder.is_gguf() || !folder.has_weights()) return false;
  try {
    const HuggingFaceWeights& weights = folder.weights();
    std::string table = layout.tied_head, head = kHead;
    for (const std::string& prefix : layout.prefixes()) {
      if (!weights.contains(prefix + layout.tied_head)) continue;
      table = prefix + layout.tied_head;
      head = layout.with_prefix(prefix).head_prefix + kHead;
    }
    return weights.contains(head) && weights.contains(table) && !equal(weights, head, table);
  } catch (const MissingInput&) {  // missing shards are reported when weights are read
    return false;
  }
}

/// Returns whether the folder's model has a language head, according to its tensors or, if there
/// are none, to config.json. Decoders without a head have tensor names without a prefix.
bool has_language_head(const ModelFolder& folder, const ModelConfig& model,
                       const ModelFamily& family) {
  const HuggingFaceLayout& layout = family.hugging_face;
  if (folder.is_gguf()) return layout.head.empty();  // encoders' files have none
  if (!family.is_language_model) return true;
  try {
    if (!folder.has_weights()) {
      const json::object config = python_object_in(folder.files(), "config.json");
      const json::value* named = config.if_contains("architectures");
      return layout.head.empty() || named == nullptr ||
             json_line(*named).find("Model\"") == std::string::npos;
    }
    const HuggingFaceWeights& weights = folder.weights();
    if (layout.head.empty())
      return model.tied_head || !family.has("tied_head") || weights.contains(kHead) ||
             !weights.contains(layout.tied_head);
    return std::ranges::any_of(weights.files(), [&](const SafetensorsFile& file) {
      return std::ranges::any_of(file.entries(), [&](const SafetensorsEntry& entry) {
        return std::ranges::any_of(
            layout.head, [&](const auto& begin) { return entry.name.starts_with(begin); });
      });
    });
  } catch (const MissingInput&) {  // missing shards are reported when weights are read
    return true;
  }
}

void require_model(const ModelFolder& model) {
  const fs::path& folder = model.path();
  const std::string path = folder.string();
  if (model.is_gguf()) return;
  if (fs::is_regular_file(folder)) refuse_container(folder);
  if (!fs::is_directory(folder))
    throw MissingInput(concat(path,
                              ": does not exist; want a Hugging Face model folder with "
                              "config.json, weights and tokenizer, or a GGUF file",
                              download_hint(folder)));
  if (!holds_adapter(folder)) return;
  if (model.has_weights())
    throw DataError(
        concat(path,
               ": contains a model and an adapter (adapter_config.json); to use only the model, "
               "move the adapter's files out of the folder; to use the adapter, move them to a "
               "separate folder whose base_model_name_or_path is this folder"));
  throw DataError(concat(path, ": is a PEFT adapter, not a model; give its base model (\"",
                         read_adapter_config(folder).base, "\"), with --adapter ", shell_path(path),
                         " to train the adapter on, or merge both into a model: hybrid export ",
                         shell_path(path), " --merge --output MERGED"));
}

/// Warns only about unknown generation keys, because sampling settings do not affect the model.
void warn_of_generation_keys(const FolderFiles& folder) {
  constexpr const char* kFile = "generation_config.json";
  if (!folder.contains(kFile)) return;
  const UnreadKeys unread =
      sort_unread_keys(read_python_object(folder, kFile), ForeignFile::kGenerationConfig, {});
  warn_of_unknown_keys((folder.path() / kFile).string(), unread.unknown);
}

ModelConfig parsed_config(const ModelFolder& folder, const ModelRegistry& registry) {
  const std::string name =
      folder.is_gguf() ? folder.string() : (folder.path() / "config.json").string();
  const json::object config = folder.is_gguf() ? gguf_config(folder.gguf())
                                               : read_python_object(folder.files(), "config.json");
  const ReadConfig read = read_hugging_face_config(config, name, registry);
  warn_of_unknown_keys(name, read.unknown);
  return read.model;
}

}  // namespace

void check_hugging_face_export(const ModelConfig& model, const ModelRegistry& registry) {
  const ModelFamily& family = find_family(model.family, registry);
  if (family.hugging_face.model_type.empty())
    throw DataError(concat(
        "transformers has no ", family.title, " models, so this model cannot be ",
        "exported as a folder; `hybrid eval` and `train --resume` take the run's own folder"));
  if (model.experts.bias_rate > 0)
    throw DataError(concat("model.experts.bias_rate: got ", model.experts.bias_rate,
                           ", but model folders of ", model.family,
                           " cannot store the biases that choose experts; train with "
                           "model.experts.balance_loss to export"));
  hugging_face_config(resolved_model_config(model, registry), layout_of(model, registry), {},
                      DType::kF32);
}

void export_hugging_face(Network& network, const ModelConfig& given, const Tokenizer* tokenizer,
                         const fs::path& folder, const Stream& stream,
                         const ModelRegistry& registry, DType dtype, const std::string& token_ids,
                         const ModelFolder& origin, const fs::path& base_config,
                         const std::function<void(const fs::path&)>& finish) {
  const ModelConfig model = resolved_model_config(given, registry);
  check_tokenizer_fits(tokenizer, model);
  check_hugging_face_export(model, registry);
  const HuggingFaceLayout layout = layout_of(model, registry);
  const OriginFolder taken_over(origin, layout);
  if (!layout.has_window_key && model.window > 0)
    warn(folder.string(), concat("config.json has no key for model.window=", model.window,
                                 ": other programs ignore the window"));
  if (model.attention_pattern.is_on())
    warn(folder.string(),
         "config.json has no key for model.attention_pattern: other programs ignore the pattern");
  if (const std::string misread = layout.misread ? layout.misread(model) : ""; !misread.empty())
    warn(folder.string(), misread);
  OutputFolder output(folder, OutputFolder::Existing::kRefuse);
  const fs::path& made = output.create();
  write_files(network, model, taken_over, tokenizer, dtype, token_ids, made.string(), stream,
              base_config, registry);
  if (finish) finish(made);
  output.commit();
}

DType dtype_of_hugging_face_weights(const ModelFolder& folder) {
  if (folder.is_gguf()) return is_all_bf16(folder.gguf()) ? DType::kBF16 : DType::kF32;
  const HuggingFaceWeights& weights = folder.weights();
  const auto is_short = [](const SafetensorsEntry& entry) {
    return entry.dtype == "BF16" || is_mixer_vector_in_f32(entry);
  };
  const bool all =
      std::all_of(weights.files().begin(), weights.files().end(), [&](const SafetensorsFile& file) {
        return std::all_of(file.entries().begin(), file.entries().end(), is_short);
      });
  return all ? DType::kBF16 : DType::kF32;
}

ModelConfig read_hugging_face_model_config(const ModelFolder& folder, double dropout,
                                           const ModelRegistry& registry) {
  require_model(folder);
  ModelConfig model = parsed_config(folder, registry);
  if (!folder.is_gguf()) warn_of_generation_keys(folder.files());
  model.dropout = dropout;
  model.language_head = model.pooling.empty() &&
                        has_language_head(folder, model, find_family(model.family, registry));
  if (model.tied_head && has_own_head(folder, find_family(model.family, registry).hugging_face))
    model.tied_head = false;
  return model;
}

void read_hugging_face_weights(const ModelFolder& opened, Network& network,
                               const ModelConfig& model, const WeightCallback& take,
                               const ModelRegistry& registry, TokenTables tables) {
  const ModelConfig theirs = read_hugging_face_model_config(opened, 0, registry);
  const ModelFamily& family = find_family(model.family, registry);
  const HuggingFaceLayout layout = family.hugging_face.with_unused(theirs);
  check_sizes(theirs, resolved_model_config(model, registry), family, opened.string(),
              opened.is_gguf() ? TokenTables::kRead : tables);
  const auto take_new = [&](Parameter& parameter) {
    TextHead* const head = network.text_head();
    const bool is_random = head != nullptr && head->owns(parameter) && !head->is_last(parameter) &&
                           is_matrix(parameter.role());
    take(parameter, NewWeight(parameter, is_random));
  };
  if (opened.is_gguf()) {
    std::set<Parameter*> read;
    visit_gguf_weights(opened.gguf(), network, resolved_model_config(model, registry),
                       [&](Parameter& parameter, const FolderWeight& weight) {
                         read.insert(&parameter);
                         take(parameter, weight);
                       });
    return network.visit_parameters([&](Parameter& parameter) {
      if (!read.contains(&parameter) && !belongs_to_adapter(parameter)) take_new(parameter);
    });
  }
  OpenFolder folder{opened.weights(), "", "", quantization_of_hugging_face(opened)};
  std::map<Parameter*, std::vector<FileTensor>> in_files;
  network.visit_parameters([&](Parameter& parameter) {
    if (is_of_module(parameter)) return;
    const auto [entry, added] = in_files.emplace(&parameter, parameter.in_files());
    for (FileTensor& in_file : entry->second) {
      for (const std::string& prefix : layout.prefixes())
        if (in_file.prefixed && folder.weights.contains(prefix + in_file.name))
          folder.prefix = prefix;
    }
  });
  folder.head_prefix = layout.with_prefix(folder.prefix).head_prefix;
  const std::string head = folder.head_prefix + kHead;
  for (auto& [parameter, parts] : in_files)
    for (FileTensor& in_file : parts)
      if (in_file.name == kHead && theirs.tied_head && !folder.weights.contains(head))
        in_file.name = layout.tied_head, in_file.prefixed = true;
  const auto contains = [&](const std::string& name) {
    return folder.weights.contains(folder.prefix + name);
  };
  const bool has_new_head =
      !layout.classifier.empty() && theirs.labels != resolved_model_config(model, registry).labels;
  const auto is_new = [&](const Parameter& parameter) {
    const FileTensor in_file = parameter.in_files().front();
    if (has_new_head && in_file.name.starts_with(layout.classifier)) return true;
    const bool is_of_head = network.text_head() != nullptr && network.text_head()->owns(parameter);
    if (!is_of_head) return false;
    const bool is_last = network.text_head()->is_last(parameter);
    return (is_last && theirs.labels.size() != model.labels.size()) ||
           !folder.weights.contains(folder.name_of(in_file));
  };
  std::set<std::string> wanted;
  for (auto& [parameter, parts] : in_files) {
    if (is_new(*parameter)) continue;
    std::vector<FileTensor> stored;
    for (const FileTensor& in_file : parts) {
      const bool may_be_renamed = theirs.experts.count > 0 && in_file.prefixed;
      if ((!may_be_renamed && layout.head.empty()) || !folder.keys_of(in_file).empty()) {
        stored.push_back(in_file);
        continue;
      }
      for (FileTensor& found : as_stored(in_file, theirs.experts.count, [&](const auto& name) {
             return in_file.prefixed ? contains(name) : folder.weights.contains(name);
           }))
        stored.push_back(std::move(found));
    }
    parts = std::move(stored);
    for (const FileTensor& in_file : parts)
      if (!folder.lacks(in_file))
        for (const std::string& name : folder.names_of(in_file)) wanted.insert(name);
  }
  const std::string table = layout.tied_head.empty() ? "" : folder.prefix + layout.tied_head;
  Copies copies{{head, table}};
  for (const std::string& name : layout.copies_of_table) copies[folder.prefix + name] = table;
  for (const CopyInFiles& copy : layout.head_copies)
    copies[copy.name] = copy.of.empty() ? table : copy.of;
  check_names(folder.weights, wanted, copies, layout, model);
  network.visit_parameters([&](Parameter& parameter) {
    if (is_of_module(parameter)) {
      if (!holds_module(opened.path(), parameter)) return take_new(parameter);
      return read_module_weight(opened.path(), parameter,
                                [&](const FolderWeight& weight) { take(parameter, weight); });
    }
    const std::string& name = parameter.in_files().front().name;
    const bool is_replaced =
        tables == TokenTables::kReplaced && (name == kHead || name == layout.tied_head);
    if (is_new(parameter) || is_replaced) return take_new(parameter);
    const WeightInFiles weight(folder, in_files.at(&parameter), parameter.shape());
    warn_of_endless_decay(opened.string(), parameter.name(), weight);
    take(parameter, weight);
  });
}

void read_hugging_face_weights(const ModelFolder& folder, Network& network,
                               const ModelConfig& model, const Stream& stream,
                               const ModelRegistry& registry) {
  const WeightCallback take = [&](Parameter& parameter, const FolderWeight& weight) {
    const Tensor master = parameter.master_in_place();
    if (master.device().type == DeviceType::kCpu) return weight.read(master);
    wait_for_copy(master, weight.values(), stream);
  };
  read_hugging_face_weights(folder, network, model, take, registry);
}

std::string download_hint(const fs::path& name) {
  const std::string text = name.string();
  const std::size_t slash = text.find('/');
  const bool is_hub_name = slash != std::string::npos && slash > 0 && text[0] != '.' &&
                           text[0] != '~' && slash + 1 < text.size() &&
                           text.find('/', slash + 1) == std::string::npos;
  if (!is_hub_name || fs::exists(name.parent_path())) return "";
  return concat("; download it first: hf download ", shell_path(text), " --local-dir ",
                shell_path(text.substr(slash + 1)));
}

}  // namespace hybrid_trainer
