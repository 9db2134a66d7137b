#pragma once

#include <deque>
#include <map>

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// Returns HTML of a run's current state: progress, time left, phase machine, memory against
/// budget, last decision, warnings.
std::string live_html(const WatchedRun& run);

/// Returns HTML rows of a table of runs: sparkline, phase, step, loss, with links to their pages.
std::string live_rows(const WatchedFolder& folder);

/// Returns the page of a folder of runs, which refers to nothing but the runs' pages.
std::string runs_page(const WatchedFolder& folder);
/// Returns its Content-Security-Policy.
std::string runs_policy();

/// Events sent to one viewer of a feed so far.
struct FeedPosition {
  std::uint64_t generation = 0;  // of its records; 0: none, so everything is sent
  std::uint64_t curves = 0;      // version of the curves that it continues
  std::uint64_t message = 0;     // of the next one
  std::uint64_t parts = 0;       // version of its parts
};

/// A run as server-sent events, for any number of viewers. Each step is a message; its id is the
/// step and its data is the line of metrics.jsonl. An event `reset` contains all curves so far, for
/// a viewer that cannot continue, for example because the run rolled back. An event `parts`
/// contains HTML by the ids of the page's elements. When the curves are so long that adjacent
/// points are merged, all viewers receive a `reset` after the steps before it.
class RunFeed {
 public:
  /// Maximum missed steps that a viewer still receives one by one.
  static constexpr std::size_t kMaxMessages = 4096;

  explicit RunFeed(WatchedRun& run);
  /// Reads new records in the run's folder. Returns true if there is updates for viewers.
  bool refresh();
  const WatchedRun& run() const { return run_; }
  /// Returns the whole current page. Its script continues with the following events.
  std::string page() const;
  /// Returns the position of a viewer with the steps up to `after` of records `generation`.
  FeedPosition position_after(const std::string& generation, std::int64_t after) const;
  /// Returns all events that the viewer has not received, or "".
  std::string updates(FeedPosition& place) const;

 private:
  struct Message {
    std::int64_t step;
    std::string text;
  };
  struct Part {
    std::string html;
    std::uint64_t version = 0;
  };
  std::string reset_event() const;
  void update_parts();
  std::string generation() const;

  WatchedRun& run_;
  std::deque<Message> messages_;
  std::uint64_t first_message_ = 0;   // the number of messages_.front()
  std::uint64_t generations_ = 1;     // number of times that the run's records began
  std::uint64_t curves_version_ = 1;  // changes when points are merged
  std::int64_t steps_per_point_ = 1;
  std::map<std::string, Part> parts_;
  std::uint64_t parts_version_ = 0;
};

/// Returns "event: NAME", its data on one line, and the final empty line.
std::string server_event(const std::string& name, const std::string& data);

}  // namespace hybrid_trainer
