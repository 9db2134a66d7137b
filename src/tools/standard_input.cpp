#include "src/tools/standard_input.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/temporary_name.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/tables/file_in_row.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;

/// Fills the buffer as far as there is input.
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
  if (is_utf16(begin)) return ".jsonl";  // a table is told by its content, too
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == begin.npos) return ".jsonl";
  return begin[first] == '[' ? ".json" : begin[first] == '{' ? ".jsonl" : ".csv";
}

}  // namespace

StandardInput::StandardInput(const std::filesystem::path& stem) {
  if (::isatty(STDIN_FILENO) != 0)
    throw UsageError(
        "standard input is a terminal; lead examples into it: COMMAND < examples.jsonl");
  std::string buffer;
  std::string_view part = read_part(buffer);
  if (part.empty()) throw DataError("standard input: holds no examples");
  const std::filesystem::path path = stem.string() + ending_of(part);
  if (std::filesystem::exists(path))
    throw CannotCreate(
        concat(path.string(), ": exists, and standard input would be kept there; move it away"));
  constexpr unsigned kOwnerAlone = 0600;
  OutputFile file(path, OutputFile::Existing::kRefuse, path, kOwnerAlone);
  removed_at_signals_.emplace(path);
  path_ = path;
  try {
    for (; !part.empty(); part = read_part(buffer)) file.write(part);
    file.sync_and_close();
    const std::string beside = path.string() + kFolderOfRows;
    folder_removed_at_signals_.emplace(beside);
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
  throw CannotCreate(concat("standard input cannot be kept in ", error.path1().string(), ": ",
                            error.code().message(), "; set TMPDIR to a folder"));
}

StandardInput::~StandardInput() {
  std::error_code ignored;
  if (is_kept_) return;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(path_.string() + kFolderOfRows, ignored);
}

}  // namespace hybrid_trainer
