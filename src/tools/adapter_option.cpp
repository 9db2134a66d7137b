#include "src/tools/adapter_option.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/adapter_files.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

/// Whether both folders tell of one shape of model, as far as they can be read.
bool may_be_one_model(const std::filesystem::path& a, const std::filesystem::path& b) {
  try {
    return config_json(read_hugging_face_model_config(a, 0)) ==
           config_json(read_hugging_face_model_config(b, 0));
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

void take_adapter(TrainingRunSettings& settings, const std::string& folder,
                  const std::string& command, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    if (!change.starts_with("lora.") || change.starts_with("lora.base=") ||
        change.starts_with("lora.dropout="))
      continue;
    throw UsageError(concat(command, ": --set ", change,
                            " beside --adapter, which takes it from its ",
                            "folder; of lora.* only lora.base and lora.dropout can be set"));
  }
  const AdapterFolder adapter = read_adapter_config(folder);
  if (!adapter.weights_beside.empty())
    throw DataError(
        concat(folder, ": the adapter also changes ", adapter.weights_beside.front(),
               ", which is not trained beside adapters; merge it into its base and train ",
               "on from that: hybrid export ", folder, " --merge --output MERGED"));
  if (settings.init_from && !may_be_one_model(adapter.base, *settings.init_from))
    throw DataError(concat(folder, ": the adapter is of ", adapter.base, ", another model than ",
                           settings.init_from->string()));
  LoraConfig lora = adapter.config;
  lora.base = settings.config.lora.base;
  if (std::any_of(changes.begin(), changes.end(),
                  [](const std::string& change) { return change.starts_with("lora.dropout="); }))
    lora.dropout = settings.config.lora.dropout;
  settings.config.lora = lora;
  settings.adapter = folder;
}

}  // namespace hybrid_trainer
