#include "src/tools/adapter_option.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/hugging_face/adapter_files.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/io/run_directory.h"

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

/// What `source` says of adapters must be what the folder says, but for what is the run's matter.
void check_same_adapters(const LoraConfig& asked, const LoraConfig& in_folder,
                         const std::string& folder, const std::string& command,
                         const ConfigArguments& source) {
  const FieldNode here = field_tree(asked), there = field_tree(in_folder);
  for (std::size_t i = 0; i < here.fields.size(); ++i) {
    const FieldNode &ours = here.fields[i], &theirs = there.fields[i];
    const bool is_free = ours.name == "base" || ours.name == "dropout";
    if (is_free || field_text(ours) == field_text(theirs) || !source.sets("lora." + ours.name))
      continue;
    throw UsageError(concat(command, ": lora.", ours.name, ": got ", field_text(ours),
                            ", but the adapter ", folder, " has ", field_text(theirs),
                            "; leave it out: of lora.* only lora.base and lora.dropout can be set ",
                            "beside --adapter"));
  }
}

}  // namespace

void take_adapter(TrainingRunSettings& settings, const std::string& folder,
                  const std::string& command, const ConfigArguments& source) {
  if (RunPaths{folder}.hold_a_run())
    throw UsageError(concat(command, ": --adapter ", folder,
                            " is a run; make a folder of its adapter first: hybrid export ",
                            shell_path(folder), " --adapter --output ADAPTER"));
  const AdapterFolder adapter = read_adapter_config(folder);
  if (!adapter.weights_beside.empty())
    throw DataError(
        concat(folder, ": the adapter also changes ", adapter.weights_beside.front(),
               ", a weight that was trained whole, from which --adapter does not go on; merge ",
               "it into its base and train ", "on from that: hybrid export ", shell_path(folder),
               " --merge --output MERGED"));
  if (settings.init_from && !may_be_one_model(adapter.base, *settings.init_from))
    throw DataError(concat(folder, ": the adapter is of ", adapter.base, ", another model than ",
                           settings.init_from->string()));
  LoraConfig lora = adapter.config;
  check_same_adapters(settings.config.lora, lora, folder, command, source);
  lora.base = settings.config.lora.base;
  if (source.sets("lora.dropout")) lora.dropout = settings.config.lora.dropout;
  settings.config.lora = lora;
  settings.adapter = folder;
}

}  // namespace hybrid_trainer
