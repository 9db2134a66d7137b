#pragma once

#include <deque>
#include <map>

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// Returns HTML of a run's state: progress, time left, phase, memory, budget, decision, warnings.
std::string live_html(const WatchedRun& run);

/// Returns HTML rows of a table of runs: sparkline, phase, step, loss, with links to their pages.
std::string live_rows(const WatchedFolder& folder);

/// Returns the page of a folder of runs, which refers to nothing but the runs' pages.
std::string runs_page(const WatchedFolder& folder);
/// Returns the Content-Security-Policy of runs_page.
std::string runs_policy();

/// Identifies the events that one viewer of a feed has received.
struct FeedPosition {
  std::uint64_t generation = 0;  // generation of its records; 0: it has none and needs everything
  std::uint64_t curves = 0;      // version of the curves that it continues
  std::uint64_t message = 0;     // number of its next message
  std::uint64_t parts = 0;       // version of the parts that it has
};

/// Provides a run as server-sent events, for any number of viewers. Each step is a message; its id
/// is the step and its data the line of metrics.jsonl. An event `reset` contains all curves so far.
/// Viewers receive it if they cannot continue, for example after a rollback. An event `parts`
/// contains HTML, keyed by the ids of the page's elements. When the curves have become so long that
/// adjacent points are merged, all viewers receive the remaining steps and then a `reset`.
class RunFeed {
 public:
  /// Maximum missed steps that a viewer still receives one by one.
  static constexpr std::size_t kMaxMessages = 4096;

  explicit RunFeed(WatchedRun& run);
  /// Reads new records in the run's folder. Returns true if there are updates for viewers.
  bool refresh();
  const WatchedRun& run() const { return run_; }
  /// Returns the whole page in its current state. Its script receives the events that follow.
  std::string page() const;
  /// Returns the position of a viewer with steps up to `after` of the records of this generation.
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
  std::uint64_t first_message_ = 0;   // number of messages_.front()
  std::uint64_t generations_ = 1;     // counts how often the run's records have begun
  std::uint64_t curves_version_ = 1;  // changes when points are merged
  std::int64_t steps_per_point_ = 1;
  std::map<std::string, Part> parts_;
  std::uint64_t parts_version_ = 0;
};

/// Returns "event: NAME", its data on one line, and the final empty line.
std::string server_event(const std::string& name, const std::string& data);

}  // namespace hybrid_trainer
