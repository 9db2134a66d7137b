#pragma once

#include <deque>
#include <map>

#include "src/observability/watch/watched_run.h"

namespace hybrid_trainer {

/// HTML of what a run does at this moment: progress, time left, phase machine, memory against budget,
/// last decision, warnings.
std::string live_now(const WatchedRun& run);

/// HTML rows of a table of runs: sparkline, phase, step, loss, with links to their pages.
std::string live_rows(const WatchedFolder& folder);

/// The page of a folder of runs, which refers to nothing but the runs' pages.
std::string runs_page(const WatchedFolder& folder);
/// Its Content-Security-Policy.
std::string runs_policy();

/// What was sent to one viewer of a feed.
struct FeedPlace {
  std::uint64_t generation = 0;  // of the records that it has; 0: none, so all is to be sent anew
  std::uint64_t curves = 0;      // version of the curves that its own go on from
  std::uint64_t message = 0;     // the next one
  std::uint64_t parts = 0;       // version of the parts that it has
};

/// A run as server-sent events, for any number of viewers. Each step is a message of its own, whose id
/// is the step and whose data is its line of metrics.jsonl. An event `reset` holds all curves so far:
/// for a viewer that cannot go on from what it has, as where the run went back. An event `parts` holds
/// HTML by the ids of the page's elements. When the curves become so long that neighboring points are
/// merged, all viewers get a `reset` after the steps before it.
class RunFeed {
 public:
  /// Steps that a viewer may miss and still get one by one.
  static constexpr std::size_t kMostMessages = 4096;

  explicit RunFeed(WatchedRun& run);
  /// Reads what is new in the run's folder. True if viewers have something to get.
  bool refresh();
  const WatchedRun& run() const { return run_; }
  /// The whole page as it is now. Its script goes on with the events after it.
  std::string page() const;
  /// Where a viewer goes on that has the steps up to `after` of the records called `generation`.
  FeedPlace place_after(const std::string& generation, std::int64_t after) const;
  /// All events that the viewer has not got yet; "" if there are none.
  std::string news(FeedPlace& place) const;

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
  std::uint64_t generations_ = 1;     // times that the run's records began
  std::uint64_t curves_version_ = 1;  // changes where points are merged
  std::int64_t steps_per_point_ = 1;
  std::map<std::string, Part> parts_;
  std::uint64_t parts_version_ = 0;
};

/// "event: NAME", its data on one line, and the empty line that ends it.
std::string server_event(const std::string& name, const std::string& data);

}  // namespace hybrid_trainer
