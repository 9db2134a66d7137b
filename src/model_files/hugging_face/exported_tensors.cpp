#include "src/model_files/hugging_face/exported_tensors.h"

#include <cstring>
#include <map>

#include "hybrid_trainer/models/lora.h"
#include "src/core/messages.h"
#include "src/files/output_file.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/hugging_face/quantized_tensors.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxOriginConfigBytes = 1 << 20;
constexpr const char* kTextConfig = "text_config";
constexpr const char* kProcessors[] = {"preprocessor_config.json", "processor_config.json",
                                       "video_preprocessor_config.json"};

class ExportedParts {
 public:
  /// `experts`: number of experts, along the first dimension of a common tensor.
  ExportedParts(std::vector<NamedTensor>& tensors, std::int64_t experts)
      : tensors_(tensors), experts_(experts) {}
  void add(const NamedTensor& made, const FileTensor& of) {
    const auto& [name, values] = made;
    if (of.parts == 1) return tensors_.push_back(made);
    const auto [begun, is_new] = begun_.emplace(name, tensors_.size());
    if (is_new) {
      FileTensor part{.name = name, .shape = values.shape(), .parts = of.parts};
      if (of.parts == 2 * experts_) {  // gates and ups
        part.parts = experts_;
        part.shape = {2 * values.size(0), values.size(1)};
      }
      tensors_.push_back({name, host_tensor(part.whole_shape(), values.dtype())});
    }
    std::byte* const whole = static_cast<std::byte*>(tensors_[begun->second].tensor.raw());
    std::memcpy(whole + static_cast<std::size_t>(of.part) * values.bytes(), values.raw(),
                values.bytes());
  }

 private:
  std::vector<NamedTensor>& tensors_;
  std::int64_t experts_;
  std::map<std::string, std::size_t> begun_;
};

void append_values(ExportedParts& parts, Parameter& parameter, std::int64_t experts,
                   const OriginFolder& origin, DType dtype, const Stream& stream) {
  const Tensor value = wait_for_host(parameter.acquire_master(stream), stream);
  std::int64_t row = 0;
  for (const FileTensor& usual : parameter.in_files()) {
    for (const FileTensor& in_file : origin.as_stored(usual, experts)) {
      const std::string name = origin.layout().full_name(in_file);
      Tensor tensor = in_file_layout(value.rows(row, row + in_file.rows()), in_file);
      row += in_file.rows();
      if (dtype != DType::kF32 && !origin.holds_in_f32(name)) tensor = rounded_to_bf16(tensor);
      parts.add({name, tensor}, in_file);
    }
  }
}

/// Adds a quantized weight's codes. Throws DataError for stacked experts in a bitsandbytes form.
void append_codes(ExportedParts& parts, const Parameter& parameter, const QuantizedWeight& weight,
                  const OriginFolder& origin, const Stream& stream) {
  const std::vector<FileTensor>& in_files = parameter.in_files();
  const std::int64_t columns = parameter.shape()[1];
  for (std::size_t i = 0; i < in_files.size(); ++i) {
    const std::string name = origin.layout().full_name(in_files[i]);
    const QuantizedRows part = reordered(weight.parts().at(i), columns, in_files[i].order,
                                         TargetOrder::kFile, name, stream);
    if (in_files[i].parts > 1 && form_of(part) != kMicroScalingForm)
      throw DataError(concat(name,
                             " contains all experts of a layer, and bitsandbytes does not quantize "
                             "such tensors; export without --quantize"));
    std::vector<NamedTensor> tensors;
    append_quantized(tensors, name, columns, part, stream);
    for (const NamedTensor& tensor : tensors) parts.add(tensor, in_files[i]);
  }
}

}  // namespace

bool is_mixer_vector_in_f32(const SafetensorsEntry& entry) {
  static constexpr const char* kEndings[] = {".A_log", ".D", ".dt_bias", ".linear_attn.norm.weight",
                                             ".expert_bias"};
  return entry.dtype == "F32" && entry.shape.size() == 1 &&
         std::ranges::any_of(kEndings, [&](auto end) { return entry.name.ends_with(end); });
}

OriginFolder::OriginFolder(const ModelFolder& folder, const HuggingFaceLayout& layout)
    : layout_(layout), folder_(folder) {
  const bool copies_tensors = !layout.carried.empty() || layout.has_mixers;
  if (folder.empty() || !copies_tensors || folder.is_gguf()) return;
  if (!folder.has_weights()) {
    if (!layout.carried.empty())
      warn(folder.string(),
           concat("no longer exists; training started from this folder, and the export lacks any "
                  "other parts that it had (",
                  join(layout.carried), "); restore the folder and export again to include them"));
    return;
  }
  weights_ = &folder.weights();
  json::object config = read_python_object(folder.files(), "config.json");
  const json::value* inner = config.if_contains(kTextConfig);
  if (layout.outer.model_type.empty() || inner == nullptr || !inner->is_object()) return;
  outer_ = std::move(config);
  for (const std::string& prefix : layout.prefixes())
    if (weights_->contains(prefix + layout.tied_head)) layout_ = layout.with_prefix(prefix);
}

json::object OriginFolder::config_around(json::object text_config) const {
  if (!outer_) return text_config;
  json::object whole = *outer_;
  json::object& inner = whole[kTextConfig].get_object();
  // Sets the key in the object that has it, otherwise among the keys of the text model.
  const auto set = [&](const char* key) {
    const json::value* value = text_config.if_contains(key);
    if (value == nullptr || value->is_null()) return;
    if (whole.contains(key)) whole[key] = *value;
    if (inner.contains(key) || !whole.contains(key)) inner[key] = *value;
  };
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"})
    set(key);
  const json::object before = hugging_face_config(
      resolved_model_config(read_hugging_face_model_config(folder_, 0)), layout_, {}, DType::kF32);
  for (const char* key : {"vocab_size", "max_position_embeddings", "rope_scaling"})
    if (text_config.contains(key) && before.contains(key) && text_config.at(key) != before.at(key))
      inner[key] = text_config.at(key);
  const json::value dtype = text_config.at("torch_dtype");
  for (const char* key : {"torch_dtype", "dtype"})
    for (json::object* part : {&whole, &inner})
      if (part->contains(key)) (*part)[key] = dtype;
  whole.erase("quantization_config");
  if (json::value* quantization = text_config.if_contains("quantization_config")) {
    json::object& said = quantization->as_object();
    json::array& skipped =
        said.at(said.contains("llm_int8_skip_modules") ? "llm_int8_skip_modules"
                                                       : "modules_to_not_convert")
            .as_array();
    for (const std::string& prefix : layout_.carried)
      skipped.emplace_back(prefix.substr(0, prefix.size() - 1));  // without the final dot
    whole["quantization_config"] = *quantization;
  }
  return whole;
}

std::vector<CopiedTensor> OriginFolder::carried() const {
  std::vector<CopiedTensor> tensors;
  if (weights_ == nullptr) return tensors;
  for (const SafetensorsFile& file : weights_->files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      const std::string own = layout_.carried_name(entry.name);
      if (own.empty()) continue;
      tensors.push_back({&file, entry.name, layout_.prefix.empty() ? own : entry.name});
    }
  }
  return tensors;
}

bool OriginFolder::holds_in_f32(const std::string& name) const {
  if (weights_ == nullptr || !weights_->contains(name)) return false;
  return is_mixer_vector_in_f32(weights_->file_of(name).entry(name));
}

std::vector<FileTensor> OriginFolder::as_stored(const FileTensor& tensor,
                                                std::int64_t experts) const {
  if (weights_ == nullptr || experts == 0 || !tensor.prefixed) return {tensor};
  return hybrid_trainer::as_stored(tensor, experts, [&](const std::string& name) {
    return weights_->contains(layout_.prefix + name);
  });
}

void OriginFolder::copy_processors(const fs::path& to) const {
  if (folder_.empty() || folder_.is_gguf()) return;
  for (const char* name : kProcessors)
    if (folder_.files().contains(name))
      replace_file((to / name).string(), folder_.files().bytes(name, kMaxOriginConfigBytes));
}

Tensor rounded_to_bf16(const Tensor& values) {
  const Tensor rounded = host_tensor(values.shape(), DType::kBF16);
  std::transform(values.data<float>(), values.data<float>() + values.elements(),
                 rounded.data<BFloat16>(), to_bfloat16);
  return rounded;
}

std::string quantization_of(Network& model) {
  std::string form;
  model.visit_parameters([&](Parameter& parameter) {
    const auto* weight = dynamic_cast<const QuantizedWeight*>(&parameter.storage());
    if (weight != nullptr && form.empty()) form = form_of(weight->parts().front());
  });
  return form;
}

DType unquantized_dtype(Network& model, const Stream& stream) {
  bool all_short = true;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.role() != Role::kVector || belongs_to_adapter(parameter)) return;
    const Tensor values = wait_for_host(parameter.acquire_master(stream), stream);
    const float* const begin = values.data<float>();
    all_short = all_short && std::all_of(begin, begin + values.elements(),
                                         [](float x) { return to_float(to_bfloat16(x)) == x; });
  });
  return all_short ? DType::kBF16 : DType::kF32;
}

std::vector<NamedTensor> exported_tensors(Network& model, std::int64_t experts,
                                          const OriginFolder& origin, DType dtype,
                                          const Stream& stream) {
  std::vector<NamedTensor> tensors;
  ExportedParts parts(tensors, experts);
  model.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter)) return;
    const auto* weight = dynamic_cast<const QuantizedWeight*>(&parameter.storage());
    if (weight != nullptr && !form_of(weight->parts().front()).empty()) {
      append_codes(parts, parameter, *weight, origin, stream);
    } else {
      append_values(parts, parameter, experts, origin, dtype, stream);
    }
  });
  return tensors;
}

}  // namespace hybrid_trainer
