#include "src/hugging_face/quantization_config.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/hugging_face/folder_weight.h"
#include "src/hugging_face/config_reader.h"
#include "src/hugging_face/hugging_face_files.h"
#include "src/hugging_face/micro_scaling_tensors.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr std::size_t kMostQuantizationBytes = 1 << 20;

bool is_true(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::string four_bit_form(const json::object& asked) {
  const json::value* type = asked.if_contains("bnb_4bit_quant_type");
  return type != nullptr && *type == "nf4" ? "nf4" : "fp4";  // fp4 is the library's default
}

}  // namespace

std::string parse_quantization_config(const json::object& config, const std::string& name) {
  const json::value* value = config.if_contains("quantization_config");
  if (value == nullptr || value->is_null()) return "";
  const json::object none;
  const json::object& asked = value->is_object() ? value->get_object() : none;
  const json::value* method = asked.if_contains("quant_method");
  if (method != nullptr && *method == kMicroScalingForm) return kMicroScalingForm;
  ConfigReader reader(asked, "quantization_config.");
  reader.expect({"quant_method", {std::string("bitsandbytes")}});
  reader.expect({"bnb_4bit_quant_storage", {std::string("uint8")}});
  reader.expect({"bnb_4bit_quant_type", {std::string("nf4"), std::string("fp4")}});
  reader.expect({"llm_int8_has_fp16_weight", {false}});
  for (const char* key :
       {"load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit",
        "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype", "llm_int8_skip_modules",
        "llm_int8_threshold", "llm_int8_enable_fp32_cpu_offload"})
    reader.know(key);
  reader.sort_unread(ForeignFile::kQuantizationConfig);
  const bool four = is_true(asked, "load_in_4bit"), eight = is_true(asked, "load_in_8bit");
  warn_of_unknown_keys(name, reader.unknown());
  if (reader.problems().empty() && four != eight) return four ? four_bit_form(asked) : "int8";
  throw DataError(
      concat(name, ": quantization_config: not weights that can be read: want those of ",
             "bitsandbytes with load_in_4bit or load_in_8bit, mxfp4, or the folder that ",
             "they were made from (lora.base quantizes them here)", reader.problems()));
}

json::object quantization_config(const std::string& form) {
  if (form == kMicroScalingForm)
    return {{"quant_method", form},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
              "lm_head"}}};
  const bool eight = form == "int8";
  json::object config{{"quant_method", "bitsandbytes"},
                      {"load_in_4bit", !eight},
                      {"load_in_8bit", eight},
                      {"llm_int8_skip_modules", json::array{"lm_head"}}};
  if (eight) return config;
  config["bnb_4bit_quant_type"] = form;
  config["bnb_4bit_use_double_quant"] = true;
  config["bnb_4bit_compute_dtype"] = "bfloat16";
  config["bnb_4bit_quant_storage"] = "uint8";
  return config;
}

std::string quantization_of_hugging_face(const std::filesystem::path& folder) {
  if (GgufFile::is_one(folder)) return "";
  const std::string path = (folder / "config.json").string();
  return parse_quantization_config(
      parse_python_object(read_text(path, kMostQuantizationBytes), path), path);
}

}  // namespace hybrid_trainer
