#include "src/hugging_face/origin_folder.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "src/hugging_face/hugging_face_files.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostOriginConfigBytes = 1 << 20;
constexpr const char* kTextConfig = "text_config";
constexpr const char* kProcessors[] = {"preprocessor_config.json", "processor_config.json",
                                       "video_preprocessor_config.json"};

bool begins_with_one_of(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::ranges::any_of(
      beginnings, [&](const std::string& beginning) { return name.starts_with(beginning); });
}

}  // namespace

bool is_mixer_vector_in_f32(const SafetensorsEntry& entry) {
  static constexpr const char* kEndings[] = {".A_log", ".D", ".dt_bias",
                                             ".linear_attn.norm.weight"};
  return entry.dtype == "F32" && entry.shape.size() == 1 &&
         std::ranges::any_of(kEndings, [&](auto end) { return entry.name.ends_with(end); });
}

OriginFolder::OriginFolder(const fs::path& folder, const HuggingFaceLayout& layout)
    : layout_(layout), folder_(folder) {
  const bool takes_over = !layout.carried.empty() || layout.mixer_keys != MixerKeys::kNone;
  if (folder.empty() || !takes_over || GgufFile::is_one(folder)) return;
  if (!HuggingFaceWeights::are_in(folder)) {
    if (!layout.carried.empty())
      warn(folder.string(), concat("is gone: the model began with it, and what it may have had ",
                                   "beside the text model (", join(layout.carried),
                                   ") is not written; put it back and export again to have it"));
    return;
  }
  weights_.emplace(folder);
  const std::string path = (folder / "config.json").string();
  json::object config = parse_python_object(read_text(path, kMostOriginConfigBytes), path);
  const json::value* inner = config.if_contains(kTextConfig);
  if (layout.outer.model_type.empty() || inner == nullptr || !inner->is_object()) return;
  outer_ = std::move(config);
  layout_.prefix = layout.outer.prefix;
}

json::object OriginFolder::config_around(json::object text_config) const {
  if (!outer_) return text_config;
  json::object whole = *outer_;
  json::object& inner = whole[kTextConfig].get_object();
  const auto set = [&](const char* key) {  // where it stands, or beside the text model's keys
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
      skipped.emplace_back(prefix.substr(0, prefix.size() - 1));  // without the dot
    whole["quantization_config"] = *quantization;
  }
  return whole;
}

std::vector<CarriedTensor> OriginFolder::carried() const {
  std::vector<CarriedTensor> tensors;
  if (!weights_) return tensors;
  for (const SafetensorsFile& file : weights_->files()) {
    for (const SafetensorsEntry& entry : file.entries())
      if (begins_with_one_of(entry.name, layout_.carried)) tensors.push_back({&file, entry.name});
  }
  return tensors;
}

bool OriginFolder::holds_in_f32(const std::string& name) const {
  if (!weights_ || !weights_->contains(name)) return false;
  return is_mixer_vector_in_f32(weights_->file_of(name).entry(name));
}

void OriginFolder::copy_processors(const fs::path& to) const {
  if (folder_.empty() || GgufFile::is_one(folder_)) return;
  for (const char* name : kProcessors)
    if (fs::exists(folder_ / name))
      replace_file((to / name).string(),
                   read_file((folder_ / name).string(), kMostOriginConfigBytes));
}

}  // namespace hybrid_trainer
