#include "hybrid_trainer/hugging_face/adapter_files.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/output_folder.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

constexpr const char* kConfigFile = "adapter_config.json";

/// What a key may hold without changing what is computed.
constexpr const char* kToldOnly[] = {"base_model_name_or_path",
                                     "ensure_weight_tying",
                                     "inference_mode",
                                     "megatron_core",
                                     "peft_version",
                                     "qalora_group_size",
                                     "revision",
                                     "runtime_config"};

/// A weight of an adapter's part under its name in the file, as rows of the weight here.
struct AdapterTensor {
  std::string name;
  Parameter* parameter;
  std::int64_t first_row, rows;
};

std::vector<AdapterTensor> tensors_of(LanguageModel& model) {
  std::vector<AdapterTensor> tensors;
  model.visit_linears([&](Linear& linear) {
    LowRankAdapter* const adapter = linear.adapter();
    if (adapter == nullptr) return;
    const std::int64_t rank = adapter->spec().rank;
    std::int64_t a_row = 0, b_row = 0;
    for (const AdapterPart& part : adapter->parts()) {
      const std::string stem = "base_model.model." + part.name + ".lora_";
      tensors.push_back({stem + "A.weight", &adapter->a(), a_row, rank});
      tensors.push_back({stem + "B.weight", &adapter->b(), b_row, part.rows});
      if (adapter->decomposes())
        tensors.push_back({stem + "magnitude_vector", adapter->magnitude(), b_row, part.rows});
      a_row += rank;
      b_row += part.rows;
    }
  });
  return tensors;
}

/// The targets as PEFT wants them: the last parts of all names where all linear maps are meant.
json::array target_modules(LanguageModel& model, const LoraConfig& config) {
  std::set<std::string> names;
  if (config.targets == kAllLinear) {
    model.visit_linears([&](Linear& linear) {
      if (linear.adapter() == nullptr) return;
      for (const AdapterPart& part : linear.adapter()->parts())
        names.insert(part.name.substr(part.name.rfind('.') + 1));
    });
  } else {
    for (const std::string& target : config.target_names()) names.insert(target);
  }
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

bool lies_transposed(LanguageModel& model) {
  bool transposed = false;
  model.visit_linears([&](Linear& linear) {
    if (linear.adapter() != nullptr) transposed = linear.adapter()->parts().front().transposed;
  });
  return transposed;
}

std::string config_text(LanguageModel& model, const LoraConfig& config, const std::string& base) {
  return pretty_json(json::object{{"peft_type", "LORA"},
                                  {"task_type", "CAUSAL_LM"},
                                  {"base_model_name_or_path", base},
                                  {"revision", nullptr},
                                  {"inference_mode", true},
                                  {"r", config.rank},
                                  {"lora_alpha", config.alpha},
                                  {"lora_dropout", config.dropout},
                                  {"target_modules", target_modules(model, config)},
                                  {"bias", "none"},
                                  {"fan_in_fan_out", lies_transposed(model)},
                                  {"use_rslora", config.variant == "rslora"},
                                  {"use_dora", config.variant == "dora"},
                                  {"init_lora_weights", true},
                                  {"modules_to_save", nullptr},
                                  {"rank_pattern", json::object{}},
                                  {"alpha_pattern", json::object{}},
                                  {"layers_to_transform", nullptr},
                                  {"layers_pattern", nullptr}});
}

bool says_nothing(const json::value& value) {
  return value.is_null() || value == json::value(false) || value == json::value("") ||
         (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}

/// An adapter_config.json, with all its problems collected.
class AdapterConfigReader {
 public:
  AdapterConfigReader(const json::object& object, std::string name)
      : object_(object), name_(std::move(name)) {}

  AdapterFolder read() {
    AdapterFolder folder;
    LoraConfig& config = folder.config;
    want("peft_type", value("peft_type") == json::value("LORA"), "\"LORA\"");
    want("task_type", says_nothing(value("task_type")) || value("task_type") == "CAUSAL_LM",
         "\"CAUSAL_LM\"");
    want("bias", says_nothing(value("bias")) || value("bias") == "none", "\"none\"");
    config.rank = static_cast<std::int64_t>(number("r", 8));
    config.alpha = number("lora_alpha", 8);
    config.dropout = number("lora_dropout", 0);
    if (flag("use_rslora")) config.variant = "rslora";
    if (flag("use_dora")) {
      want("use_dora", config.variant == "lora", "false beside use_rslora");
      config.variant = "dora";
    }
    config.targets = targets();
    flag("fan_in_fan_out");
    const json::value start = value("init_lora_weights");
    want("init_lora_weights", start.is_null() || start.is_bool() || start == "gaussian",
         "true, false or \"gaussian\": others change the weights beneath");
    const json::value base = value("base_model_name_or_path");
    if (base.is_string()) folder.base = base.get_string().c_str();
    for (const auto& [key, held] : object_) {
      if (read_.contains(key) || is_told_only(key)) continue;
      want(key, says_nothing(held), "it left out: lora, rslora and dora alone are read");
    }
    if (problems_.empty()) collect(config);
    if (!problems_.empty())
      throw DataError(concat(name_, ": not an adapter that can be read:", problems_));
    return folder;
  }

 private:
  static bool is_told_only(const std::string& key) {
    return std::find(std::begin(kToldOnly), std::end(kToldOnly), key) != std::end(kToldOnly);
  }
  json::value value(const std::string& key) {
    read_.insert(key);
    const json::value* found = object_.if_contains(key);
    return found == nullptr ? json::value() : *found;
  }
  double number(const std::string& key, double missing) {
    const json::value found = value(key);
    if (found.is_null()) return missing;
    want(key, found.is_number(), "a number");
    return found.is_number() ? found.to_number<double>() : missing;
  }
  bool flag(const std::string& key) {
    const json::value found = value(key);
    want(key, found.is_null() || found.is_bool(), "true or false");
    return found == json::value(true);
  }
  std::string targets() {
    const json::value found = value("target_modules");
    if (found == kAllLinear) return kAllLinear;
    const json::array* const array = found.if_array();
    const bool names = array != nullptr && !array->empty() &&
                       std::all_of(array->begin(), array->end(),
                                   [](const json::value& name) { return name.is_string(); });
    want("target_modules", names, "a list of names, or \"all-linear\"");
    std::vector<std::string> all;
    if (names) {
      for (const json::value& name : *array) all.emplace_back(name.get_string());
    }
    std::sort(all.begin(), all.end());
    return join(all, ",");
  }
  void collect(const LoraConfig& config) {
    std::vector<std::string> found;
    collect_range_problems(config, "", found);
    if (config.rank < 1) found.push_back(concat("r: got ", config.rank, ", want at least 1"));
    for (const std::string& problem : found) problems_ += "\n" + problem;
  }
  void want(const std::string& key, bool is_right, const std::string& wanted) {
    if (is_right) return;
    problems_ +=
        concat("\n", key, ": got ", json::serialize(value(key)).substr(0, 60), ", want ", wanted);
  }
  const json::object& object_;
  std::string name_;
  std::set<std::string> read_;
  std::string problems_;
};

}  // namespace

void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                   const fs::path& folder, const Stream& stream) {
  std::vector<NamedTensor> tensors;
  for (const AdapterTensor& tensor : tensors_of(model)) {
    const Tensor values = wait_for_host(tensor.parameter->acquire_master(stream), stream);
    tensors.push_back({tensor.name, values.rows(tensor.first_row, tensor.first_row + tensor.rows)});
  }
  OutputFolder output((folder / "").parent_path(), OutputFolder::Existing::kRefuse);
  const std::string to = output.create().string();
  replace_file(to + "/" + kConfigFile, config_text(model, config, base));
  write_safetensors(to + "/" + kAdapterTensors, std::move(tensors));
  output.commit();
}

bool holds_adapter(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kConfigFile, error);
}

AdapterFolder read_adapter_config(const fs::path& folder) {
  const std::string path = (folder / kConfigFile).string();
  const json::value value = read_json(path);
  if (!value.is_object()) throw DataError(concat(path, ": want a JSON object"));
  return AdapterConfigReader(value.get_object(), path).read();
}

void read_adapter_weights(const fs::path& folder, LanguageModel& model, const Stream& stream) {
  const SafetensorsFile file((folder / kAdapterTensors).string());
  const Stream host(MemoryPool::create("host"));
  std::set<std::string> wanted;
  for (const AdapterTensor& tensor : tensors_of(model)) {
    wanted.insert(tensor.name);
    const Shape& whole = tensor.parameter->shape();
    const Shape shape = whole.rank() == 1 ? Shape{tensor.rows} : Shape{tensor.rows, whole[1]},
                found = file.entry(tensor.name).tensor_shape();
    if (found != shape) {
      throw DataError(concat(file.path(), ": ", tensor.name, " is ", found.text(), ", want ",
                             shape.text(), "; the adapter is of another base"));
    }
    const Tensor values = Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, host);
    file.read(tensor.name, values);
    wait_for_copy(
        tensor.parameter->home_master().rows(tensor.first_row, tensor.first_row + tensor.rows),
        values, stream);
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (wanted.contains(entry.name)) continue;
    throw DataError(concat(file.path(), ": the tensor ", entry.name, " belongs to no adapter of ",
                           "the model that ", kConfigFile, " tells of"));
  }
}

}  // namespace hybrid_trainer
