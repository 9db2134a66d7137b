#include "src/tools/kept_examples.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/distributed/launched_rank.h"
#include "hybrid_trainer/files/file_descriptor.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/temporary_name.h"
#include "hybrid_trainer/io/run_directory.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

void check_launcher() {
  const auto launched = launched_rank();
  if (launched && launched->size > 1)
    throw UsageError(concat("--data -: ", launched->launcher,
                            " gives standard input to one rank alone; give a file of examples"));
}

/// The examples that a start which was killed has left in the folder; "" where there are none.
std::string left_over(const std::string& run) {
  if (!RunPaths{run}.hold_a_start()) return "";
  for (const char* ending : {".jsonl", ".json", ".csv", ".parquet"})
    if (const std::string file = run + "/examples" + ending; fs::exists(file)) return file;
  return "";
}

bool have_same_bytes(const fs::path& one, const fs::path& other) {
  const InputFile a(one), b(other);
  if (a.bytes() != b.bytes()) return false;
  std::string part, same;
  for (std::size_t at = 0; at < a.bytes(); at += part.size()) {
    part.resize(std::min(kMostBytesAtOnce, a.bytes() - at));
    same.resize(part.size());
    a.read_at(part.data(), part.size(), at);
    b.read_at(same.data(), same.size(), at);
    if (part != same) return false;
  }
  return true;
}

}  // namespace

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
  is_of_input_ = true;
  if (const std::string left = left_over(run); !left.empty()) {
    take_left_over(left, resumes);
  } else {
    check_launcher();
    read_input();
  }
}

/// Of a start that was killed: the same examples may come in again, and others are not mixed up.
void KeptExamples::take_left_over(const std::string& left, bool resumes) {
  if (!resumes) {
    check_launcher();
    const StandardInput again(fs::path(run_) / (".tmp-input-" + temporary_mark()));
    if (!have_same_bytes(again.path(), left))
      throw CannotCreate(
          concat(left, ": holds what an earlier start read from standard input, and ",
                 "other examples come in now; move the file away, or train on it: ", "--data ",
                 shell_path(left)));
  }
  std::cerr << "takes the examples of " << left << ", which an earlier start read from "
            << StandardInput::kCalled << std::endl;
  data_ = left;
}

void KeptExamples::read_input() {
  makes_folder_ = !fs::exists(run_);
  try {
    make_folders(run_);
    std::optional<TemporaryPath> removed_at_signals;
    if (makes_folder_) removed_at_signals.emplace(run_);
    input_.emplace(fs::path(run_) / "examples").keep_at_signals();
  } catch (const Error&) {
    std::error_code ignored;
    if (makes_folder_) fs::remove(run_, ignored);
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
  if (!is_of_input_) return arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--data=-") arguments[i] = "--data=" + data_;
    if (i > 0 && arguments[i - 1] == "--data" && arguments[i] == "-") arguments[i] = data_;
  }
  return arguments;
}

}  // namespace hybrid_trainer
