#pragma once

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// Shows a run, or a folder of runs, to browsers on this machine. Paths of a run: `/`, a live page;
/// `/events`, its steps as server-sent events; `/metrics` for Prometheus; `/summary.json`. A folder
/// has the same paths for all its runs together, and the paths of each run below `/run/NAME/`.
class WatchServer {
 public:
  /// Port 0 selects a free port. `folder` must outlive this object. Throws InUse, CannotCreate.
  WatchServer(WatchedFolder& folder, std::uint16_t port);
  ~WatchServer();
  std::uint16_t port() const;
  /// Serves until Ctrl-C, a signal or stop(), and refreshes the folder every `interval` seconds.
  void run(double interval);
  void stop();  // thread-safe

 private:
  class Routes;
  std::unique_ptr<Routes> routes_;
};

}  // namespace hybrid_trainer
