#include "src/tools/standard_input.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/core/messages.h"
#include "src/data/tables/row_files.h"
#include "src/distributed/launched_rank.h"
#include "src/files/output_file.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;

/// Fills the buffer from standard input, unless the input ends. Returns the bytes read.
std::string_view read_part(std::string& buffer) {
  buffer.resize(kPart);
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(system_problem(StandardInput::kCalled, "reading failed"));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return std::string_view(buffer).substr(0, filled);
}

const char* ending_of(std::string_view begin) {
  if (begin.starts_with("PAR1")) return ".parquet";
  if (is_utf16(begin)) return ".jsonl";  // a table is detected by its content, too
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == begin.npos) return ".jsonl";
  return begin[first] == '[' ? ".json" : begin[first] == '{' ? ".jsonl" : ".csv";
}

void check_launcher() {
  const auto launched = launched_rank();
  if (launched && launched->size > 1)
    throw UsageError(concat("--data -: ", launched->launcher,
                            " passes standard input to one rank only; give a file of examples"));
}

/// Returns the file of examples that an earlier, killed process left in the folder, or "".
std::string leftover_examples(const std::string& run) {
  if (!RunPaths{run}.contains_start()) return "";
  for (const char* ending : {".jsonl", ".json", ".csv", ".parquet"})
    if (const std::string file = run + "/examples" + ending; fs::exists(file)) return file;
  return "";
}

bool have_same_bytes(const fs::path& one, const fs::path& other) {
  const InputFile a(one), b(other);
  if (a.bytes() != b.bytes()) return false;
  std::string part, same;
  for (std::size_t at = 0; at < a.bytes(); at += part.size()) {
    part.resize(std::min(kMaxBytesAtOnce, a.bytes() - at));
    same.resize(part.size());
    a.read_at(part.data(), part.size(), at);
    b.read_at(same.data(), same.size(), at);
    if (part != same) return false;
  }
  return true;
}

}  // namespace

StandardInput::StandardInput(const std::filesystem::path& stem) {
  if (::isatty(STDIN_FILENO) != 0)
    throw UsageError(
        "standard input is a terminal; redirect a file of examples into it: COMMAND < "
        "examples.jsonl");
  std::string buffer;
  std::string_view part = read_part(buffer);
  if (part.empty()) throw DataError("standard input: contains no examples");
  const std::filesystem::path path = stem.string() + ending_of(part);
  if (std::filesystem::exists(path))
    throw CannotCreate(concat(path.string(),
                              ": exists already, but the examples from standard input are stored "
                              "there; move the file away"));
  constexpr unsigned kOwnerAlone = 0600;
  OutputFile file(path, OutputFile::Existing::kRefuse, path, kOwnerAlone);
  removed_on_signals_.emplace(path);
  path_ = path;
  try {
    for (; !part.empty(); part = read_part(buffer)) file.write(part);
    file.sync_and_close();
    const std::string beside = path.string() + kFolderOfRows;
    folder_removed_on_signals_.emplace(beside);
    replace_file(beside, std::filesystem::current_path().string());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    throw;
  }
}

StandardInput::StandardInput() try
    : StandardInput(std::filesystem::temp_directory_path() / ("hybrid-input-" + temporary_mark())) {
} catch (const std::filesystem::filesystem_error& error) {
  throw CannotCreate(concat("cannot store standard input in ", error.path1().string(), ": ",
                            error.code().message(), "; set TMPDIR to a folder"));
}

StandardInput::~StandardInput() {
  std::error_code ignored;
  if (is_kept_) return;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(path_.string() + kFolderOfRows, ignored);
}

StoredExamples::StoredExamples(const std::string& run, const std::string& data, bool resumes)
    : run_(run), data_(data) {
  if (data != StandardInput::kOption) return;
  if (RunPaths{run}.contains_run()) {
    if (!resumes)
      throw CannotCreate(run +
                         ": contains a run already; continue it with --resume, or choose another "
                         "folder for --run");
    data_.clear();
    return;
  }
  is_from_input_ = true;
  if (const std::string left = leftover_examples(run); !left.empty()) {
    reuse_leftover(left, resumes);
  } else {
    check_launcher();
    read_input();
  }
}

/// Reuses the examples of an earlier, killed process. Standard input must equal them unless the run
/// resumes.
void StoredExamples::reuse_leftover(const std::string& left, bool resumes) {
  if (!resumes) {
    check_launcher();
    const StandardInput again(fs::path(run_) / (".tmp-input-" + temporary_mark()));
    if (!have_same_bytes(again.path(), left))
      throw CannotCreate(concat(left,
                                ": contains other examples, which an earlier start read from "
                                "standard input; move the file away, or train on it: --data ",
                                shell_path(left)));
  }
  std::cerr << "using the examples in " << left << ", which an earlier start read from "
            << StandardInput::kCalled << std::endl;
  data_ = left;
}

void StoredExamples::read_input() {
  makes_folder_ = !fs::exists(run_);
  try {
    make_folders(run_);
    std::optional<TemporaryPath> removed_on_signals;
    if (makes_folder_) removed_on_signals.emplace(run_);
    input_.emplace(fs::path(run_) / "examples").keep_on_signals();
  } catch (const Error&) {
    std::error_code ignored;
    if (makes_folder_) fs::remove(run_, ignored);
    throw;
  }
  data_ = input_->path().string();
}

StoredExamples::~StoredExamples() {
  if (!input_) return;
  const RunPaths paths{run_};
  if (paths.contains_run()) {
    input_->keep();
    return;
  }
  input_.reset();
  if (!makes_folder_) return;
  std::error_code ignored;
  fs::remove(paths.lock(), ignored);
  fs::remove(run_, ignored);  // removes only an empty folder
}

std::vector<std::string> StoredExamples::in_place_of_input(
    std::vector<std::string> arguments) const {
  if (!is_from_input_) return arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--data=-") arguments[i] = "--data=" + data_;
    if (i > 0 && arguments[i - 1] == "--data" && arguments[i] == "-") arguments[i] = data_;
  }
  return arguments;
}

}  // namespace hybrid_trainer
