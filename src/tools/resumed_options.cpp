#include "src/tools/resumed_options.h"

#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/run_folder/run_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// `before`: empty where the run began without one.
void check_began_with(const ResumedOptions& given, const std::string& option,
                      const std::string& folder, const fs::path& before) {
  if (folder.empty() || fs::weakly_canonical(folder) == fs::weakly_canonical(before)) return;
  throw UsageError(concat(given.command, ": ", option, ": got ", folder, ", but the run began ",
                          before.empty() ? "without one" : "with " + before.string(), "; leave ",
                          option, " out to go on with the run, or begin another one"));
}

void check_is_there(const ResumedOptions& given, const char* option, const std::string& asked,
                    const fs::path& before) {
  if ((!asked.empty() && asked != before) || before.empty() || fs::exists(before)) return;
  throw MissingInput(concat(before.string(),
                            ": is not there, and the run is trained on it; put it ",
                            "back, or say where it is now: ", given.command, " --resume --run ",
                            shell_path(given.run), " ", option, " NEW_PLACE"));
}

}  // namespace

void check_resumed_options(const ResumedOptions& given, const HybridTrainerConfig& config) {
  const RunData before = data_of_run({given.run});
  const bool may_move = config.freezes() && !before.base.empty();
  if (!may_move) check_began_with(given, given.model_option, given.model, before.base);
  check_began_with(given, "--adapter", given.adapter, before.adapter);
  check_is_there(given, "--data", given.data, before.folder);
  check_is_there(given, "--validation", given.validation, before.validation);
}

}  // namespace hybrid_trainer
