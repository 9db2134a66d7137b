#include "hybrid_trainer/observability/metrics_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/file_descriptor.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
constexpr std::size_t kMostLine = std::size_t{8} << 20;  // a longer one is no record

/// Up to `bytes` at `offset`; fewer where the file ends.
std::string read_some(int file, std::size_t bytes, std::int64_t offset,
                      const std::filesystem::path& path) {
  std::string text(bytes, '\0');
  ssize_t got = 0;
  do {
    got = ::pread(file, text.data(), bytes, offset);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw IoError(system_problem(path, "reading failed"));
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

bool MetricsTail::has_same_past(int file) const {
  const auto length = static_cast<std::int64_t>(last_line_.size());
  return read_some(file, last_line_.size(), offset_ - length, path_) == last_line_;
}

MetricsTail::Change MetricsTail::read(const std::function<void()>& anew,
                                      const std::function<void(const StepRecord&)>& visit) {
  struct stat found {};
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool is_there =
      file.number() >= 0 && ::fstat(file.number(), &found) == 0 && S_ISREG(found.st_mode);
  if (is_there && found.st_ino == inode_ && found.st_size == size_ &&
      found.st_mtim.tv_sec == modified_.tv_sec && found.st_mtim.tv_nsec == modified_.tv_nsec)
    return Change::kNone;
  Change change = Change::kNone;
  if (offset_ > 0 && (!is_there || found.st_ino != inode_ || found.st_size < offset_ ||
                      !has_same_past(file.number()))) {
    offset_ = 0;
    last_line_.clear();
    change = Change::kAnew;
    anew();
  }
  inode_ = found.st_ino;
  size_ = is_there ? found.st_size : -1;
  modified_ = found.st_mtim;
  if (!is_there) return change;
  std::string text;  // from the offset on
  for (;;) {
    const std::string more = read_some(file.number(), kMostAtOnce,
                                       offset_ + static_cast<std::int64_t>(text.size()), path_);
    if (more.empty()) break;
    text += more;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      last_line_.assign(line).push_back('\n');
      offset_ += std::ssize(last_line_);
      if (const auto record = parse_json_line(line)) {
        visit(*record);
        if (change == Change::kNone) change = Change::kMore;
      }
    }
    text.erase(0, begin);
    if (text.size() > kMostLine)
      throw DataError(concat(path_.string(), ": a line of more than ", kMostLine >> 20, " MiB"));
  }
  return change;
}

}  // namespace hybrid_trainer
