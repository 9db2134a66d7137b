#pragma once

#include "src/observability/watch/http_server.h"
#include "src/observability/watch/run_feed.h"

namespace hybrid_trainer {

/// Shows a run, or a folder of runs, to browsers on this machine. Paths of a run: `/`, a live page;
/// `/events`, its steps as server-sent events; `/metrics` for Prometheus; `/summary.json`. A folder
/// has the same paths for all its runs together, and the paths of each run below `/run/NAME/`.
class WatchServer {
 public:
  /// Port 0 selects a free port. `folder` must outlive this object. Throws InUse, CannotCreate.
  WatchServer(WatchedFolder& folder, std::uint16_t port);
  std::uint16_t port() const { return server_.port(); }
  /// Serves until Ctrl-C, a signal or stop(), and refreshes the folder every `interval` seconds.
  void run(double interval) {
    server_.run(interval, [this] { return refresh(); });
  }
  void stop() { server_.stop(); }  // thread-safe

 private:
  bool refresh();
  HttpAnswer answer(const HttpRequest& request) const;
  HttpAnswer answer_of_run(const std::string& name, const std::string& what,
                           const HttpRequest& request) const;
  WatchedFolder& folder_;
  HttpServer server_;
  std::map<std::string, std::unique_ptr<RunFeed>> feeds_;
  std::string rows_;
  std::uint64_t rows_version_ = 0;
};

}  // namespace hybrid_trainer
