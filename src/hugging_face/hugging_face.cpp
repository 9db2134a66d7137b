#include "hybrid_trainer/hugging_face/hugging_face.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/output_folder.h"
#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/hugging_face/hugging_face_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostConfigBytes = 1 << 20;

/// to (columns, rows) = from (rows, columns) transposed, in blocks that stay in the cache.
void transpose(const Tensor& to, const Tensor& from) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t rows = from.size(0), columns = from.size(1);
  const float* source = from.data<float>();
  float* target = to.data<float>();
  for (std::int64_t i = 0; i < rows; i += kBlock) {
    for (std::int64_t j = 0; j < columns; j += kBlock) {
      for (std::int64_t r = i; r < std::min(rows, i + kBlock); ++r) {
        for (std::int64_t c = j; c < std::min(columns, j + kBlock); ++c)
          target[c * rows + r] = source[r * columns + c];
      }
    }
  }
}

std::string full_name(const FileTensor& in_file, const std::string& prefix) {
  return in_file.prefixed ? prefix + in_file.name : in_file.name;
}

std::vector<NamedTensor> tensors_for_file(LanguageModel& model, const HuggingFaceLayout& layout,
                                          DType dtype, const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  std::vector<NamedTensor> tensors;
  model.visit_parameters([&](Parameter& parameter) {
    if (is_of_adapter(parameter)) return;
    const Tensor value = wait_for_host(parameter.acquire_master(stream), stream);
    std::int64_t row = 0;
    for (const FileTensor& in_file : layout.tensors(parameter, model.config())) {
      Tensor tensor = value.rows(row, row + in_file.rows());
      row += in_file.rows();
      if (in_file.transposed) {
        const Tensor turned =
            Tensor::empty(in_file.shape, DType::kF32, MemoryKind::kWorkspace, host);
        transpose(turned, tensor);
        tensor = turned;
      }
      if (dtype != DType::kF32) {
        const Tensor rounded =
            Tensor::empty(tensor.shape(), DType::kBF16, MemoryKind::kWorkspace, host);
        std::transform(tensor.data<float>(), tensor.data<float>() + tensor.elements(),
                       rounded.data<BFloat16>(), to_bfloat16);
        tensor = rounded;
      }
      tensors.push_back({full_name(in_file, layout.prefix), tensor});
    }
  });
  return tensors;
}

void write_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model,
                     const std::string& folder) {
  const auto id = tokenizer.end_of_text();
  const std::string end_of_text(id ? tokenizer.token_bytes(*id) : "");
  tokenizer.save(folder);
  const TokenizerFiles& files = tokenizer.files();
  if (files.contains("tokenizer_config.json") || !files.contains("merges.txt")) return;
  replace_file(
      folder + "/tokenizer_config.json",
      hugging_face_tokenizer_config_text(model, end_of_text, tokenizer.adds_prefix_space()));
  replace_file(folder + "/special_tokens_map.json", hugging_face_special_tokens_text(end_of_text));
}

void write_files(LanguageModel& model, const HuggingFaceLayout& layout, const Tokenizer* tokenizer,
                 DType dtype, const std::string& folder, const Stream& stream) {
  const auto end_of_text = tokenizer == nullptr ? std::nullopt : tokenizer->end_of_text();
  replace_file(folder + "/config.json",
               hugging_face_config_text(model.config(), layout, end_of_text, dtype));
  replace_file(folder + "/generation_config.json", hugging_face_generation_text(end_of_text));
  if (tokenizer != nullptr && tokenizer->kind() == TokenizerKind::kBpe)
    write_tokenizer(*tokenizer, model.config(), folder);
  write_safetensors(folder + "/model.safetensors", tensors_for_file(model, layout, dtype, stream));
}

/// Whether both tensors hold the same numbers.
bool equal(const HuggingFaceWeights& weights, const std::string& a, const std::string& b) {
  const SafetensorsFile &of_a = weights.file_of(a), &of_b = weights.file_of(b);
  const Stream stream(MemoryPool::create("host"));
  if (of_a.entry(a).shape != of_b.entry(b).shape) return false;
  const Tensor x =
      Tensor::empty(of_a.entry(a).tensor_shape(), DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  of_a.read(a, x);
  of_b.read(b, y);
  return std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

/// Checks that every tensor of the folder is wanted, ignored or a copy of the token table.
void check_names(const HuggingFaceWeights& weights, const std::set<std::string>& wanted,
                 const HuggingFaceLayout& layout, const std::string& tied_head) {
  const auto is_ignored = [&](const std::string& name) {
    return std::any_of(layout.ignored.begin(), layout.ignored.end(),
                       [&](const std::string& ending) { return name.ends_with(ending); });
  };
  for (const std::string& name : wanted) weights.file_of(name);  // throws if one is missing
  for (const SafetensorsFile& file : weights.files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (wanted.count(entry.name) || is_ignored(entry.name)) continue;
      if (entry.name != "lm_head.weight" || tied_head.empty()) {
        throw DataError(
            concat(file.path(), ": the tensor ", entry.name,
                   " belongs to no part of the model that config.json tells of",
                   name_hint(entry.name, {wanted.begin(), wanted.end()}).substr(0, 200)));
      }
      if (!equal(weights, entry.name, tied_head)) {
        throw DataError(concat(file.path(), ": lm_head.weight differs from ", tied_head,
                               "; only a head that is tied to the token table can be read"));
      }
    }
  }
}

void read_tensor(const Tensor& value, const FileTensor& in_file, const HuggingFaceWeights& weights,
                 const std::string& prefix, const Stream& host) {
  const std::string name = full_name(in_file, prefix);
  const SafetensorsFile& file = weights.file_of(name);
  const Shape found = file.entry(name).tensor_shape();
  if (found != in_file.shape) {
    throw DataError(
        concat(file.path(), ": ", name, " is ", found.text(), ", want ", in_file.shape.text()));
  }
  if (!in_file.transposed) return file.read(name, value);
  const Tensor matrix = Tensor::empty(in_file.shape, DType::kF32, MemoryKind::kWorkspace, host);
  file.read(name, matrix);
  transpose(value, matrix);
}

void read_values(const Tensor& value, const std::vector<FileTensor>& in_files,
                 const HuggingFaceWeights& weights, const std::string& prefix, const Stream& host) {
  std::int64_t row = 0;
  for (const FileTensor& in_file : in_files) {
    read_tensor(value.rows(row, row + in_file.rows()), in_file, weights, prefix, host);
    row += in_file.rows();
  }
  fill_zero(value.rows(row, value.size(0)), host);
}

/// Throws DataError, which names each size that differs between the folder's model and ours.
void check_sizes(const ModelConfig& theirs, const ModelConfig& ours, const std::string& folder) {
  std::string problems;
  const auto compare = [&](const char* key, auto their, auto our) {
    if (their != our)
      problems +=
          concat("\nmodel.", key, ": the folder's is ", their, ", the configuration's ", our);
  };
  if (theirs.family != ours.family) {
    problems += concat("\nmodel.family: the folder's is ", theirs.family, ", the configuration's ",
                       ours.family);
  }
  compare("layers", theirs.layers, ours.layers);
  compare("heads", theirs.heads, ours.heads);
  compare("width", theirs.width, ours.width);
  compare("context", theirs.context, ours.context);
  compare("vocabulary", theirs.vocabulary, ours.vocabulary);
  compare("key_heads", theirs.key_heads, ours.key_heads);
  compare("head_size", theirs.head_size, ours.head_size);
  compare("inner_width", theirs.inner_width, ours.inner_width);
  compare("norm_epsilon", theirs.norm_epsilon, ours.norm_epsilon);
  compare("rope_theta", theirs.rope_theta, ours.rope_theta);
  compare("rope_scaling", config_json(theirs.rope_scaling), config_json(ours.rope_scaling));
  compare("attention_bias", theirs.attention_bias, ours.attention_bias);
  compare("mlp_bias", theirs.mlp_bias, ours.mlp_bias);
  compare("window", theirs.window, ours.window);
  compare("window_layers", theirs.window_layers, ours.window_layers);
  compare("window_rope_theta", theirs.window_rope_theta, ours.window_rope_theta);
  compare("query_scalar", theirs.query_scalar, ours.query_scalar);
  compare("attention_cap", theirs.attention_cap, ours.attention_cap);
  compare("logit_cap", theirs.logit_cap, ours.logit_cap);
  compare("tied_head", theirs.tied_head, ours.tied_head);
  if (!problems.empty()) throw DataError(concat(folder, " holds another model:", problems));
}

/// Calls visit(parameter, read) for each weight of the model, where read(values, host) fills f32 values
/// on the host.
template <class Visit>
void read_weights(const fs::path& folder, LanguageModel& model, const ModelRegistry& registry,
                  const Visit& visit) {
  check_sizes(read_hugging_face_model_config(folder, 0, registry), model.config(), folder.string());
  const HuggingFaceLayout& layout = find_family(model.config().family, registry).hugging_face;
  const HuggingFaceWeights weights(folder);
  std::map<Parameter*, std::vector<FileTensor>> in_files;
  bool prefixed = false;
  model.visit_parameters([&](Parameter& parameter) {
    const auto [entry, added] =
        in_files.emplace(&parameter, layout.tensors(parameter, model.config()));
    for (const FileTensor& in_file : entry->second) {
      prefixed =
          prefixed || (in_file.prefixed && weights.contains(full_name(in_file, layout.prefix)));
    }
  });
  const std::string prefix = prefixed ? layout.prefix : "";
  std::set<std::string> wanted;
  for (const auto& [parameter, parts] : in_files) {
    for (const FileTensor& in_file : parts) wanted.insert(full_name(in_file, prefix));
  }
  check_names(weights, wanted, layout, layout.tied_head.empty() ? "" : prefix + layout.tied_head);
  model.visit_parameters([&](Parameter& parameter) {
    visit(parameter, [&](const Tensor& values, const Stream& host) {
      read_values(values, in_files.at(&parameter), weights, prefix, host);
    });
  });
}

}  // namespace

void export_hugging_face(LanguageModel& model, const Tokenizer* tokenizer, const fs::path& folder,
                         const Stream& stream, const ModelRegistry& registry, DType dtype) {
  if (tokenizer != nullptr && tokenizer->least_table() > model.config().vocabulary) {
    throw DataError(concat("the tokenizer has ", tokenizer->vocabulary_size(),
                           " tokens and the model ", model.config().vocabulary,
                           "; give the tokenizer that the model was trained with"));
  }
  const HuggingFaceLayout& layout = find_family(model.config().family, registry).hugging_face;
  OutputFolder output(folder, OutputFolder::Existing::kRefuse);
  write_files(model, layout, tokenizer, dtype, output.create().string(), stream);
  output.commit();
}

DType dtype_of_hugging_face_weights(const fs::path& folder) {
  const HuggingFaceWeights weights(folder);
  const auto is_short = [](const SafetensorsEntry& entry) { return entry.dtype == "BF16"; };
  const bool all =
      std::all_of(weights.files().begin(), weights.files().end(), [&](const SafetensorsFile& file) {
        return std::all_of(file.entries().begin(), file.entries().end(), is_short);
      });
  return all ? DType::kBF16 : DType::kF32;
}

ModelConfig read_hugging_face_model_config(const fs::path& folder, double dropout,
                                           const ModelRegistry& registry) {
  const std::string path = (folder / "config.json").string();
  ModelConfig model = parse_hugging_face_config(read_file(path, kMostConfigBytes), path, registry);
  model.dropout = dropout;
  return model;
}

void read_hugging_face_weights(const fs::path& folder, LanguageModel& model,
                               const WeightTaker& take, const ModelRegistry& registry) {
  const Stream host(MemoryPool::create("host"));
  read_weights(folder, model, registry, [&](Parameter& parameter, const auto& read) {
    const Tensor values =
        Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kWorkspace, host);
    read(values, host);
    take(parameter, values);
  });
}

void read_hugging_face_weights(const fs::path& folder, LanguageModel& model, const Stream& stream,
                               const ModelRegistry& registry) {
  const Stream host(MemoryPool::create("host"));
  read_weights(folder, model, registry, [&](Parameter& parameter, const auto& read) {
    const Tensor master = parameter.home_master();
    const bool in_place = master.device().type == DeviceType::kCpu;
    const Tensor values =
        in_place ? master : Tensor::empty_like(master, MemoryKind::kWorkspace, host);
    read(values, host);
    if (!in_place) wait_for_copy(master, values, stream);
  });
}

}  // namespace hybrid_trainer
