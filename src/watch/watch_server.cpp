#include "hybrid_trainer/watch/watch_server.h"

#include <boost/json.hpp>
#include <charconv>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "src/watch/http_server.h"
#include "src/watch/live_parts.h"
#include "src/watch/page_assets.h"
#include "src/watch/prometheus.h"
#include "src/watch/run_feed.h"

namespace hybrid_trainer {
namespace {

std::int64_t whole_number(const std::string& text, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? value : otherwise;
}

/// A run's events for one viewer.
class RunStream final : public EventStream {
 public:
  RunStream(const RunFeed& feed, FeedPlace place) : feed_(feed), place_(place) {}
  std::string news() override { return feed_.news(place_); }

 private:
  const RunFeed& feed_;
  FeedPlace place_;
};

HttpAnswer not_found() { return {.status = 404, .type = "text/plain", .body = "no such page\n"}; }

}  // namespace

class WatchServer::Routes {
 public:
  Routes(WatchedFolder& folder, std::uint16_t port)
      : server(port, [this](const HttpRequest& request) { return answer(request); }),
        folder_(folder) {}

  /// True where somebody has something to get.
  bool look() {
    folder_.refresh();
    bool has_news = false;
    for (const auto& run : folder_.runs()) {
      auto& feed = feeds_[run->name()];
      if (!feed) feed = std::make_unique<RunFeed>(*run);
      has_news = feed->refresh() || has_news;
    }
    if (has_news && !folder_.is_run()) {
      rows_ = live_rows(folder_);
      ++rows_version_;
    }
    return has_news;
  }

  HttpServer server;

 private:
  /// The list of runs for one viewer.
  class ListStream final : public EventStream {
   public:
    explicit ListStream(const Routes& routes) : routes_(routes) {}
    std::string news() override {
      if (seen_ == routes_.rows_version_) return "";
      seen_ = routes_.rows_version_;
      return server_event("parts", json_line(boost::json::object{{"rows", routes_.rows_}}));
    }

   private:
    const Routes& routes_;
    std::uint64_t seen_ = 0;
  };

  HttpAnswer answer(const HttpRequest& request) const {
    const std::string& path = request.path;
    if (path == "/metrics")
      return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus_text(folder_)};
    if (folder_.is_run()) return answer_of_run(folder_.name(), path.substr(1), request);
    if (path == "/") return {.body = runs_page(folder_), .policy = runs_policy()};
    if (path == "/summary.json") return {.type = "application/json", .body = all_summaries()};
    if (path == "/events") return {.events = std::make_unique<ListStream>(*this)};
    constexpr std::string_view kRun = "/run/";
    if (!path.starts_with(kRun)) return not_found();
    const std::size_t slash = path.rfind('/');
    if (slash < kRun.size()) return not_found();
    return answer_of_run(path.substr(kRun.size(), slash - kRun.size()), path.substr(slash + 1),
                         request);
  }

  HttpAnswer answer_of_run(const std::string& name, const std::string& what,
                           const HttpRequest& request) const {
    const auto found = feeds_.find(name);
    if (found == feeds_.end()) return not_found();
    const RunFeed& feed = *found->second;
    if (what.empty()) return {.body = feed.page(), .policy = report_policy(k_live_js)};
    if (what == "summary.json")
      return {.type = "application/json", .body = feed.run().summary_json()};
    if (what != "events") return not_found();
    const auto after = request.query.find("after"), generation = request.query.find("generation");
    const std::string& last = !request.last_event.empty() || after == request.query.end()
                                  ? request.last_event
                                  : after->second;
    return {.events = std::make_unique<RunStream>(
                feed, feed.place_after(generation == request.query.end() ? "" : generation->second,
                                       last.empty() ? 0 : whole_number(last, -1)))};
  }

  std::string all_summaries() const {
    boost::json::object runs;
    for (const auto& run : folder_.runs()) {
      boost::json::error_code damaged;
      runs[run->name()] = boost::json::parse(run->summary_json(), damaged);
    }
    return json_line(boost::json::object{{"runs", std::move(runs)}}) + "\n";
  }

  WatchedFolder& folder_;
  std::map<std::string, std::unique_ptr<RunFeed>> feeds_;
  std::string rows_;
  std::uint64_t rows_version_ = 0;
};

WatchServer::WatchServer(WatchedFolder& folder, std::uint16_t port)
    : routes_(std::make_unique<Routes>(folder, port)) {
  routes_->look();
}

WatchServer::~WatchServer() = default;

std::uint16_t WatchServer::port() const { return routes_->server.port(); }

void WatchServer::run(double interval) {
  routes_->server.run(interval, [this] { return routes_->look(); });
}

void WatchServer::stop() { routes_->server.stop(); }

}  // namespace hybrid_trainer
