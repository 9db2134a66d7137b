#include "src/model_files/gguf/gguf_export.h"

#include "hybrid_trainer/models/lora.h"
#include "src/core/messages.h"
#include "src/gguf/block_formats.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/gguf/gguf_values.h"
#include "src/model_files/hugging_face/file_layout.h"

namespace hybrid_trainer {

namespace {

struct OutputType {
  const char* name;
  GgufType type;
  std::int64_t file_type;  // general.file_type
};

constexpr std::array kWritten{
    OutputType{"f32", GgufType::kF32, 0}, OutputType{"f16", GgufType::kF16, 1},
    OutputType{"bf16", GgufType::kBF16, 32}, OutputType{"q8_0", GgufType::kQ8_0, 7},
    OutputType{"q4_0", GgufType::kQ4_0, 2}};

const OutputType& written_type(const std::string& name) {
  const auto* found = std::ranges::find(kWritten, name, &OutputType::name);
  if (found == kWritten.end())
    throw UsageError(concat("--type: got ", name, ", want ", join(gguf_type_names())));
  return *found;
}

GgufType type_of(const GgufTensor& tensor, Role role, GgufType requested) {
  const bool is_f32 =
      tensor.shape.rank() == 1 || role == Role::kRouter || tensor.name == "position_embd.weight" ||
      tensor.name == "token_types.weight" || tensor.name.ends_with("norm.weight") ||
      tensor.name.ends_with("shortconv.conv.weight") || tensor.name.ends_with("ssm_conv1d.weight");
  if (is_f32 || requested == GgufType::kF32) return GgufType::kF32;
  const bool is_table = role == Role::kEmbedding || role == Role::kHead;
  const GgufType wanted = requested == GgufType::kQ4_0 && is_table ? GgufType::kQ8_0 : requested;
  return tensor.shape[1] % block_of(wanted).elements == 0 ? wanted : GgufType::kF16;
}

/// Returns the type of most matrices in a file: the requested one, or f16 as its replacement.
const OutputType& mostly(const GgufTypes& types, const OutputType& requested) {
  const auto count = [&](const char* name) {
    const auto found = types.find(name);
    return found == types.end() ? 0 : found->second;
  };
  const bool are_rounded = requested.type != GgufType::kF32 && count("f16") > count(requested.name);
  return are_rounded ? written_type("f16") : requested;
}

struct Part {
  Parameter* parameter;
  GgufPart part;
  std::int64_t row = 0;  // first row in the parameter
};

/// Returns the parts of the model's weights. Parts of one tensor of experts are adjacent.
std::vector<Part> parts_of(LanguageModel& model) {
  std::vector<std::vector<Part>> tensors;
  std::map<std::string, std::size_t> index;  // in `tensors`, by name
  model.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter)) return;
    std::int64_t row = 0;
    for (const FileTensor& tensor : parameter.in_files()) {
      for (const GgufPart& part : gguf_parts(model.config(), tensor)) {
        const auto [found, is_new] = index.try_emplace(part.name.name, tensors.size());
        if (is_new) tensors.emplace_back();
        tensors[found->second].push_back({&parameter, part, row});
        row += part.in_file.rows();
      }
    }
  });
  std::vector<Part> all;
  for (std::vector<Part>& parts : tensors) std::ranges::move(parts, std::back_inserter(all));
  return all;
}

Tensor values_of(const Part& part, const Stream& stream) {
  const Tensor value = wait_for_host(part.parameter->acquire_master(stream), stream);
  const FileTensor& tensor = part.part.in_file;
  const Tensor rows = value.rows(part.row, part.row + tensor.rows());
  return to_gguf(in_file_layout(rows, tensor), part.part.name);
}

Tensor vector_of(const std::vector<float>& values) {
  const Tensor tensor = host_tensor({std::ssize(values)});
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

}  // namespace

const std::vector<std::string>& gguf_type_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OutputType& one : kWritten) all.emplace_back(one.name);
    return all;
  }();
  return names;
}

GgufTypes export_gguf(LanguageModel& model, const GgufTexts& texts, const std::string& type,
                      const std::filesystem::path& path, const Stream& stream) {
  const OutputType& requested = written_type(type);
  const std::vector<Part> parts = parts_of(model);
  GgufPlan plan;
  GgufTypes types;
  for (const auto& [parameter, part, row] : parts) {
    GgufTensor tensor{.name = part.name.name, .shape = part.name.shape(part.in_file.shape)};
    tensor.type = type_of(tensor, parameter->role(), requested.type);
    plan.push_back(tensor);
  }
  for_each_stacked(plan,
                   [&](const GgufTensor& tensor, std::size_t) { ++types[name_of(tensor.type)]; });
  std::vector<GgufPair> values{gguf_text("general.architecture", gguf_architecture(model.config())),
                               gguf_text("general.type", "model"),
                               gguf_text("general.name", path.stem().string()),
                               gguf_count("general.file_type", mostly(types, requested).file_type),
                               gguf_count("general.quantization_version", 2)};
  const auto add = [&](std::vector<GgufPair> more) {
    std::ranges::move(more, std::back_inserter(values));
  };
  for (const auto& [key, text] : texts.license) values.push_back(gguf_text(key, text));
  for (const auto& [key, number] : texts.sampling)
    values.push_back(key.ends_with("top_k") ? gguf_count(key, static_cast<std::int64_t>(number))
                                            : gguf_number(key, number));
  add(gguf_model_values(model.config(), path.string()));
  GgufVocabulary vocabulary = gguf_vocabulary(texts.tokenizer, texts.token_ids, model.config());
  for (const std::string& warning : vocabulary.warnings) warn(path.string(), warning);
  add(std::move(vocabulary.values));
  const std::vector<RotaryDivisors> divisors = rotary_divisors(model.config());
  for (const RotaryDivisors& one : divisors)
    plan.push_back({.name = one.name, .shape = {std::ssize(one.values)}});
  write_gguf(path, values, plan, [&](std::size_t i) {
    return i < parts.size() ? values_of(parts[i], stream)
                            : vector_of(divisors[i - parts.size()].values);
  });
  return types;
}

}  // namespace hybrid_trainer
