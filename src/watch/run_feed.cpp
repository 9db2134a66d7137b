#include "src/watch/run_feed.h"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "src/watch/live_parts.h"
#include "src/watch/page_assets.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

/// Differs between two servers, one after the other.
const std::string& server_mark() {
  static const std::string mark =
      concat(::getpid(), "-", std::chrono::system_clock::now().time_since_epoch().count());
  return mark;
}

}  // namespace

std::string server_event(const std::string& name, const std::string& data) {
  return concat("event: ", name, "\ndata: ", data, "\n\n");
}

RunFeed::RunFeed(WatchedRun& run) : run_(run) {}

std::string RunFeed::generation() const { return concat(server_mark(), "-", generations_); }

bool RunFeed::refresh() {
  std::deque<Message> fresh;
  const WatchedRun::Change change = run_.refresh([&](const StepRecord& record) {
    fresh.push_back(
        {record.step, concat("id: ", record.step, "\ndata: ", json_of_record(record), "\n\n")});
    if (fresh.size() > kMostMessages) fresh.pop_front(), ++first_message_;
  });
  if (change == WatchedRun::Change::kNone) return false;
  if (change == WatchedRun::Change::kAnew) {
    ++generations_;
    first_message_ += messages_.size();
    messages_.clear();
  }
  const std::int64_t steps_per_point = run_.content().curves().steps_per_point();
  if (steps_per_point != steps_per_point_) {  // a page does not merge points itself
    steps_per_point_ = steps_per_point;
    ++curves_version_;
  }
  for (Message& message : fresh) messages_.push_back(std::move(message));
  while (messages_.size() > kMostMessages) messages_.pop_front(), ++first_message_;
  update_parts();
  return true;
}

void RunFeed::update_parts() {
  std::map<std::string, std::string> now = run_.content().parts(run_.summary());
  now["now"] = live_now(run_);
  ++parts_version_;
  for (auto& [name, html] : now) {
    Part& part = parts_[name];
    if (part.version > 0 && part.html == html) continue;
    part = {std::move(html), parts_version_};
  }
}

std::string RunFeed::page() const {
  const json::object start{{"generation", generation()}, {"step", run_.last().step}};
  const auto now = parts_.find("now");
  const std::string top = concat(
      "<section class=\"card\" id=\"now\" aria-label=\"Now\">",
      now == parts_.end() ? "" : now->second.html,
      "</section>\n<p class=\"card bad\" id=\"connection\" hidden>No connection to <code>hybrid "
      "watch</code>; trying again …</p>\n<script type=\"application/json\" id=\"feed\">",
      json_line(start), "</script>\n");
  return run_.content().page(run_.summary(),
                             {.title = run_.name(),
                              .kind = run_.is_active() ? "training, live" : "training",
                              .settings = run_.settings(),
                              .top_html = top,
                              .style = k_live_css,
                              .script = k_live_js});
}

FeedPlace RunFeed::place_after(const std::string& mine, std::int64_t after) const {
  const FeedPlace anew;
  if (!mine.empty() && mine != generation()) return anew;
  if (after > run_.last().step || after < 0) return anew;
  const std::uint64_t end = first_message_ + messages_.size();
  if (after == run_.last().step) return {generations_, curves_version_, end, 0};
  const auto next =
      std::ranges::find_if(messages_, [&](const Message& message) { return message.step > after; });
  const bool has_gap = next == messages_.begin() && next->step != after + 1 && first_message_ > 0;
  if (next == messages_.end() || has_gap) return anew;
  return {generations_, curves_version_,
          first_message_ + static_cast<std::uint64_t>(next - messages_.begin()), 0};
}

std::string RunFeed::reset_event() const {
  const json::object start{{"generation", generation()}, {"step", run_.last().step}};
  const std::string curves = run_.content().curves().to_json();
  std::string data = json_line(start);
  data.pop_back();
  return concat("id: ", run_.last().step, "\n",
                server_event("reset", data + ",\"curves\":" + curves + "}"));
}

std::string RunFeed::news(FeedPlace& place) const {
  std::string text;
  const std::uint64_t end = first_message_ + messages_.size();
  const bool goes_on = place.generation == generations_ && place.message >= first_message_;
  if (goes_on) {
    for (; place.message < end; ++place.message)
      text += messages_[place.message - first_message_].text;
  }
  if (!goes_on || place.curves != curves_version_) {
    text += reset_event();
    place = {generations_, curves_version_, end, goes_on ? place.parts : 0};
  }
  json::object changed;
  for (const auto& [name, part] : parts_)
    if (part.version > place.parts) changed[name] = part.html;
  place.parts = parts_version_;
  if (!changed.empty()) text += server_event("parts", json_line(changed));
  return text;
}

}  // namespace hybrid_trainer
