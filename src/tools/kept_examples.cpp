#include "src/tools/kept_examples.h"

#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/launched_rank.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/io/run_directory.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

KeptExamples::KeptExamples(const std::string& run, const std::string& data, bool resumes)
    : run_(run), data_(data) {
  if (data != StandardInput::kOption) return;
  if (RunPaths{run}.hold_a_run()) {
    if (!resumes)
      throw CannotCreate(
          run + ": holds a run already; go on with it by --resume, or give --run another folder");
    data_.clear();
    return;
  }
  const auto launched = launched_rank();
  if (launched && launched->size > 1)
    throw UsageError(concat("--data -: ", launched->launcher,
                            " gives standard input to one rank alone; give a file of examples"));
  makes_folder_ = !fs::exists(run);
  try {
    make_folders(run);
    input_.emplace(fs::path(run) / "examples");
  } catch (const fs::filesystem_error& error) {
    throw CannotCreate(concat(run, ": cannot be made a run directory: ", error.code().message()));
  } catch (const Error&) {
    std::error_code ignored;
    if (makes_folder_) fs::remove(run, ignored);
    throw;
  }
  data_ = input_->path().string();
}

KeptExamples::~KeptExamples() {
  if (!input_) return;
  const RunPaths paths{run_};
  if (paths.hold_a_run()) {
    input_->keep();
    return;
  }
  input_.reset();
  if (!makes_folder_) return;
  std::error_code ignored;
  fs::remove(paths.lock(), ignored);
  fs::remove(run_, ignored);  // where nothing else is in it
}

std::vector<std::string> KeptExamples::in_place_of_input(std::vector<std::string> arguments) const {
  if (!input_) return arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--data=-") arguments[i] = "--data=" + data_;
    if (i > 0 && arguments[i - 1] == "--data" && arguments[i] == "-") arguments[i] = data_;
  }
  return arguments;
}

}  // namespace hybrid_trainer
