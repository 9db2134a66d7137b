#pragma once

#include <deque>
#include <map>

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// Returns the rows of a table of runs as HTML: sparkline, phase, step, loss and a link to the
/// run's page.
std::string live_rows(const WatchedFolder& folder);

/// Returns the page of a folder of runs, which only links to the runs' pages.
std::string runs_page(const WatchedFolder& folder);
std::string runs_policy();

/// Identifies the events that one viewer of a feed has received.
struct FeedPosition {
  /// Generation of the viewer's records; 0 if it has none and needs all of them.
  std::uint64_t generation = 0;
  std::uint64_t curves = 0;   // version of the viewer's curves
  std::uint64_t message = 0;  // index of the viewer's next message
  std::uint64_t parts = 0;    // version of the viewer's parts
};

/// Provides a run's records as server-sent events to any number of viewers. Each step is a message;
/// its id is the step and its data the line of metrics.jsonl. An event `reset` contains all curves
/// so far, for viewers whose curves cannot be continued, for example after a rollback or when
/// adjacent points are merged. An event `parts` contains HTML by element id.
class RunFeed {
 public:
  /// Maximum missed steps that a viewer still receives one by one.
  static constexpr std::size_t kMaxMessages = 4096;

  explicit RunFeed(WatchedRun& run);
  /// Reads new records in the run's folder. Returns true if there are updates for viewers.
  bool refresh();
  const WatchedRun& run() const { return run_; }
  /// Returns the whole page in its current state. The page's script receives the later events.
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
  std::uint64_t first_message_ = 0;   // index of messages_.front()
  std::uint64_t generations_ = 1;     // number of times that the run's records have begun
  std::uint64_t curves_version_ = 1;  // changes when points are merged
  std::int64_t steps_per_point_ = 1;
  std::map<std::string, Part> parts_;
  std::uint64_t parts_version_ = 0;
};

/// Returns "event: NAME", its data on one line, and the final empty line.
std::string server_event(const std::string& name, const std::string& data);

}  // namespace hybrid_trainer
