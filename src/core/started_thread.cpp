#include "hybrid_trainer/core/started_thread.h"

#include <sys/resource.h>

#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "src/core/control_groups.h"

namespace hybrid_trainer {
namespace {

/// "ulimit -u: 100", for each limit that is set.
std::vector<std::string> thread_limits() {
  std::vector<std::string> limits;
  for (const auto& [resource, name, unit] :
       {std::tuple{RLIMIT_NPROC, "ulimit -u", rlim_t{1}}, {RLIMIT_AS, "ulimit -v", rlim_t{1024}}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      limits.push_back(concat(name, ": ", limit.rlim_cur / unit));
  }
  visit_control_groups("/", "pids", [&](const std::filesystem::path& group, int) {
    std::size_t most = 0;
    if (std::ifstream(group / "pids.max") >> most) limits.push_back(concat("pids.max: ", most));
  });
  return limits;
}

}  // namespace

void throw_thread_refused() {
  const std::vector<std::string> limits = thread_limits();
  throw Error(ExitCode::kMemory,
              concat("the system refuses another thread",
                     limits.empty() ? "" : concat(" (", join(limits), ")"),
                     "; raise the limit of the user (ulimit -u) or of the container (pids.max, "
                     "docker run --pids-limit), or lower training.threads"));
}

void require_more_threads(int count) {
  std::latch end(1);
  std::vector<std::jthread> started;
  try {
    for (int i = 0; i < count; ++i) started.emplace_back([&] { end.wait(); });
  } catch (const std::system_error&) {
    end.count_down();
    started.clear();
    throw_thread_refused();
  }
  end.count_down();
}

}  // namespace hybrid_trainer
