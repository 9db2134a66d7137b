#include "hybrid_trainer/files/temporary_name.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {
namespace {

/// Changes with each start of the system.
std::string boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? "0" : id.substr(0, id.find('-'));
}

/// Process ids mean something within it alone: containers have their own.
std::string name_space() {
  std::error_code error;
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  const std::size_t begin = link.find_first_of("0123456789");
  return begin == link.npos ? "0" : link.substr(begin, link.find(']') - begin);
}

/// What a mark says; host names may hold '-'.
struct Maker {
  std::string host, boot, name_space;
  pid_t process = 0;
};

/// Process 0: it is no mark.
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

}  // namespace

std::string temporary_mark() {
  std::random_device random;
  return concat(host_name(), "-", boot(), "-", name_space(), "-", ::getpid(), "-", random(),
                random());
}

bool maker_has_ended(std::string_view mark) {
  const Maker maker = maker_of(mark);
  if (maker.process <= 0 || maker.host != host_name()) return false;
  if (maker.boot != boot()) return true;
  return maker.name_space == name_space() && ::kill(maker.process, 0) != 0 && errno == ESRCH;
}

}  // namespace hybrid_trainer
