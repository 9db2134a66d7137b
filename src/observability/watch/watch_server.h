#pragma once

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// Shows a run, or a folder of runs, to browsers of this machine. A run has `/`, a page that follows it;
/// `/events`, its steps as server-sent events; `/metrics` for Prometheus; `/summary.json`. A folder has
/// the same of all its runs, and each run below `/run/NAME/`.
class WatchServer {
 public:
  /// Listens on 127.0.0.1; port 0 takes a free one. `folder` must outlive it. Throws InUse where the
  /// port is taken, CannotCreate.
  WatchServer(WatchedFolder& folder, std::uint16_t port);
  ~WatchServer();
  std::uint16_t port() const;
  /// Looks at the folder every `interval` seconds and serves, until Ctrl-C, a signal or stop().
  void run(double interval);
  void stop();  // from any thread

 private:
  class Routes;
  std::unique_ptr<Routes> routes_;
};

}  // namespace hybrid_trainer
