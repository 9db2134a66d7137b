#include "src/files/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <random>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "src/core/process.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

/// Returns an identifier that changes with each system start.
std::string boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? "0" : id.substr(0, id.find('-'));
}

/// Returns the process namespace, in which process ids are unique; containers have separate ones.
std::string name_space() {
  std::error_code error;
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  const std::size_t begin = link.find_first_of("0123456789");
  return begin == link.npos ? "0" : link.substr(begin, link.find(']') - begin);
}

/// Contents of a mark; host names may contain '-'.
struct Maker {
  std::string host, boot, name_space;
  pid_t process = 0;
};

/// Returns the contents of a mark. The process is 0 if the text is not a mark.
Maker maker_of(std::string_view mark) {
  std::array<std::string_view, 4> last;  // random number, process, name space, boot
  for (std::string_view& field : last) {
    const std::size_t dash = mark.rfind('-');
    if (dash == mark.npos) return {};
    field = mark.substr(dash + 1);
    mark = mark.substr(0, dash);
  }
  Maker maker{std::string(mark), std::string(last[3]), std::string(last[2])};
  const char* const end = last[1].data() + last[1].size();
  if (std::from_chars(last[1].data(), end, maker.process).ptr != end) return {};
  return maker;
}

/// Renames `from` to an absent `to`. On failure, returns false with errno: EEXIST if `to` exists.
bool rename_if_absent(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // The file system does not support this rename. FAT does not support links either.
  if (::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()) == 0;
  if (errno == EEXIST) return false;
  struct stat found {};
  if (::lstat(to.c_str(), &found) != 0) return std::rename(from.c_str(), to.c_str()) == 0;
  errno = EEXIST;
  return false;
}

enum class Target { kReplaced, kNew };

void write_whole(const fs::path& path, const std::function<void(OutputFile&)>& write,
                 Target target) {
  const fs::path folder = fs::absolute(path).parent_path();
  const fs::path temporary = folder / concat(".tmp-", temporary_mark());
  const TemporaryPath removed_at_end(temporary);
  OutputFile file(temporary, OutputFile::Existing::kRefuse, path);
  try {
    write(file);
    file.sync_and_close();
    const bool is_renamed = target == Target::kNew
                                ? rename_if_absent(temporary, path)
                                : std::rename(temporary.c_str(), path.c_str()) == 0;
    if (!is_renamed && target == Target::kNew && errno == EEXIST)
      throw CannotCreate(
          concat(path.native(),
                 ": exists already and was not changed; choose another name, or remove it"));
    if (!is_renamed) throw_cannot_create(errno, system_problem(path, "cannot replace it"));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

/// Returns an unused hidden path in the folder of `path`, with `what` in its name.
fs::path sibling(const fs::path& path, const char* what) {
  return path.parent_path() / concat(".", path.filename().string(), what, temporary_mark());
}

constexpr const char *kPartial = ".partial-", *kOld = ".old-";

/// Removes folders next to `path` that killed processes left: partial ones, and replaced ones if
/// the new one is in place. Keeps files that another host may be writing.
void remove_leftover(const fs::path& path) {
  const std::string hidden = concat(".", path.filename().string());
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), unreadable)) {
    const std::string name = entry.path().filename().string();
    for (const char* what : {kPartial, kOld}) {
      const std::string prefix = hidden + what;
      if (!name.starts_with(prefix) || (what == kOld && !fs::exists(path))) continue;
      std::error_code ignored;
      if (creator_has_exited(name.substr(prefix.size()))) fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

std::string temporary_mark() {
  std::random_device random;
  return concat(host_name(), "-", boot(), "-", name_space(), "-", ::getpid(), "-", random(),
                random());
}

bool creator_has_exited(std::string_view mark) {
  const Maker maker = maker_of(mark);
  if (maker.process <= 0 || maker.host != host_name()) return false;
  if (maker.boot != boot()) return true;
  return maker.name_space == name_space() && ::kill(maker.process, 0) != 0 && errno == ESRCH;
}

void sync_folder(const fs::path& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) throw IoError(system_problem(path, "cannot open the folder"));
  if (::fsync(folder.number()) != 0) throw IoError(system_problem(path, "fsync failed"));
}

void make_folders(const fs::path& path) try {
  std::vector<fs::path> parents;
  fs::path missing = fs::absolute(path).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();  // "folder/"
  for (; !fs::exists(missing); missing = missing.parent_path())
    parents.push_back(missing.parent_path());
  fs::create_directories(path);
  for (const fs::path& parent : parents) sync_folder(parent);
} catch (const fs::filesystem_error& error) {
  throw_cannot_create(error.code().value(),
                      concat(path.string(), ": cannot create it: ", error.code().message()));
}

void sync_tree(const fs::path& path) try {
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) {
      sync_tree(entry.path());
      continue;
    }
    const FileDescriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0 || ::fsync(file.number()) != 0)
      throw IoError(system_problem(entry.path(), "fsync failed"));
  }
  sync_folder(path);
} catch (const fs::filesystem_error& error) {
  throw IoError(concat(path.string(), ": cannot list it: ", error.code().message()));
}

bool exchange_folder(const fs::path& from, const fs::path& to, const fs::path& aside) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return true;
  const bool moved = std::rename(to.c_str(), aside.c_str()) == 0;
  if (moved && std::rename(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  if (moved) std::rename(aside.c_str(), to.c_str());
  errno = error;
  return false;
}

OutputFile::OutputFile(const fs::path& path, Existing existing, fs::path called, unsigned mode)
    : path_(std::move(called)),
      file_(::open(path.c_str(),
                   O_WRONLY | O_CREAT | O_CLOEXEC |
                       (existing == Existing::kRefuse ? O_EXCL | O_NOFOLLOW : O_TRUNC),
                   mode)) {
  if (file_.number() < 0) throw_cannot_create(errno, system_problem(path_, "cannot create it"));
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    count_progress();
    const ssize_t wrote = ::write(file_.number(), next, std::min(bytes, kMaxBytesAtOnce));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw IoError(system_problem(path_, "writing failed"));
    next += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
}

void OutputFile::write_at_start(const void* data, std::size_t bytes) {
  if (::lseek(file_.number(), 0, SEEK_SET) != 0)
    throw IoError(system_problem(path_, "cannot seek to its start"));
  write(data, bytes);
}

/// Writes the contents in parts, to count progress on a slow disk. fsync then reports failures.
void OutputFile::write_out() const {
  const ::off_t end = ::lseek(file_.number(), 0, SEEK_END);
  const auto most = static_cast<::off_t>(kMaxBytesAtOnce);
  ::sync_file_range(file_.number(), 0, 0, SYNC_FILE_RANGE_WRITE);
  for (::off_t at = 0; at < end; at += most) {
    ::sync_file_range(
        file_.number(), at, most,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    count_progress();
  }
}

void OutputFile::sync_and_close() {
  write_out();
  if (::fsync(file_.number()) != 0) throw IoError(system_problem(path_, "fsync failed"));
  close();
}

void write_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

void replace_file(const fs::path& path, std::string_view text) {
  replace_file(path, [&](OutputFile& file) { file.write(text); });
}

void replace_file(const fs::path& path, const std::function<void(OutputFile&)>& write) {
  write_whole(path, write, Target::kReplaced);
}

void create_file(const fs::path& path, const std::function<void(OutputFile&)>& write) {
  write_whole(path, write, Target::kNew);
}

OutputFolder::OutputFolder(const fs::path& path, Existing existing) try
    : path_(fs::absolute(path).lexically_normal()), existing_(existing) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (fs::exists(path_)) path_ = fs::canonical(path_);
  partial_ = sibling(path_, kPartial);
} catch (const fs::filesystem_error& error) {
  throw CannotCreate(
      concat("output \"", path.string(), "\": cannot access it: ", error.code().message()));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void OutputFolder::require_free() const {
  std::error_code error;
  const bool is_free =
      !fs::exists(path_, error) || (fs::is_directory(path_, error) && fs::is_empty(path_, error));
  if (existing_ == Existing::kRefuse && !is_free)
    throw CannotCreate(
        concat(path_.string(), " exists already and is not an empty folder; nothing was written"));
  fs::path parent = path_.parent_path();
  while (!fs::exists(parent, error) && parent.has_relative_path()) parent = parent.parent_path();
  const bool is_folder = fs::is_directory(parent, error);
  if (is_folder && ::access(parent.c_str(), W_OK | X_OK) == 0) return;
  throw CannotCreate(concat(path_.string(), ": cannot create it, since ", parent.string(),
                            is_folder ? " is not writable" : " is not a folder"));
}

const fs::path& OutputFolder::create() {
  remove_leftover(path_);
  require_free();
  make_folders(partial_.parent_path());
  std::error_code error;
  if (!fs::create_directory(partial_, error))
    throw CannotCreate(
        concat("cannot create a folder next to ", path_.string(), ": ", error.message()));
  return partial_;
}

void OutputFolder::commit() {
  sync_tree(partial_);
  const fs::path old = sibling(path_, kOld);
  const bool replaces = existing_ == Existing::kReplace;
  const bool done = replaces ? exchange_folder(partial_, path_, old)
                             : std::rename(partial_.c_str(), path_.c_str()) == 0;
  if (!done) {
    const bool exists = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    const std::string problem =
        system_problem(path_, concat("cannot rename ", partial_.string(), " to it").c_str());
    if (exists) throw CannotCreate(problem);
    throw IoError(problem);
  }
  sync_folder(path_.parent_path());
  std::error_code ignored;
  for (const fs::path& replaced : {old, partial_}) fs::remove_all(replaced, ignored);
}

}  // namespace hybrid_trainer
