#include "src/observability/watch/run_feed.h"

#include <unistd.h>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/escaped_text.h"
#include "src/files/json.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/page_assets.h"

namespace hybrid_trainer {

namespace {

std::string dot(Phase phase) { return concat("<i class=\"phase ", name_of(phase), "\"></i>"); }

std::string state_badge(const WatchedRun& run) {
  const char* const kind = run.is_active()             ? "active"
                           : run.state() == "finished" ? "done"
                                                       : "ended";
  return concat("<span class=\"state ", kind, "\">", html_escaped(run.state()), "</span>");
}

std::string share_text(double share) { return concat(units::fixed(100 * share, 2), "%"); }

/// Returns a text such as "step 120 of 300 · 40 % · 1m 05s left · 12.3k tokens/s".
std::string progress_text(const WatchedRun& run) {
  std::string text = concat("step ", units::grouped(run.last().step));
  if (run.planned_steps() > 0)
    text += concat(" of ", units::grouped(run.planned_steps()), " · ",
                   narrow<int>(100 * run.done_share()), " %");
  if (const auto left = run.seconds_left()) text += " · " + units::duration(*left) + " left";
  return concat(text, " · ", units::count(run.tokens_per_second()), " ", run.last().unit(), "/s");
}

std::string live_fact(const char* name, const std::string& value) {
  return concat("<dt>", name, "</dt><dd>", html_escaped(value), "</dd>\n");
}

std::string live_facts(const WatchedRun& run) {
  const StepRecord& last = run.last();
  std::string out = "<dl>" + live_fact("Loss", units::fixed(last.loss, 4));
  if (const auto& validation = run.summary().final_validation_loss)
    out += live_fact("Validation loss", units::fixed(*validation, 4));
  out += live_fact("Learning rate", brief(last.learning_rate));
  if (last.gradient_norm) out += live_fact("Gradient norm", brief(*last.gradient_norm));
  if (last.confidence) out += live_fact("Confidence", units::fixed(*last.confidence, 2));
  if (last.planned_steps) out += live_fact("Horizon", concat(*last.planned_steps, " steps"));
  if (last.advantage) out += live_fact("Advantage", brief(*last.advantage));
  if (last.slowest_rank_ratio)
    out += live_fact("Slowest rank",
                     concat(last.slowest_rank, ", ", units::fixed(*last.slowest_rank_ratio, 1),
                            " times as long as the others"));
  return out + "</dl>\n";
}

std::string memory_row(const std::string& name, std::size_t bytes, std::size_t whole,
                       const std::string& color, const std::string& more = "") {
  const double share =
      whole > 0 ? std::min(1., static_cast<double>(bytes) / static_cast<double>(whole)) : 0;
  return concat("<div class=\"bar\"><span>", html_escaped(name), "</span><b>", units::bytes(bytes),
                html_escaped(more), "</b><i><u style=\"width:", share_text(share),
                ";background:", color, "\"></u></i></div>\n");
}

/// Returns bars of the last step's peak by kind, in the colors of the chart below.
std::string memory_bars(const WatchedRun& run) {
  const StepRecord& last = run.last();
  const std::size_t budget = run.device_budget(), peak = last.device_memory.peak_total;
  const std::size_t whole = std::max<std::size_t>(budget > 0 ? budget : peak, 1);
  std::string out = memory_row("Memory of a step", peak, whole, "var(--soft)",
                               budget > 0 ? " of " + units::bytes(budget) : "");
  int color = 0;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (run.summary().sum.device_memory.peak[kind] == 0) continue;
    std::string name = name_of(static_cast<MemoryKind>(kind));
    std::ranges::replace(name, '_', ' ');
    out += memory_row(name, last.device_memory.peak[kind], whole, concat("var(--k", color++, ")"));
  }
  if (last.host_memory.live_total > 0)
    out += memory_row("host memory", last.host_memory.live_total,
                      std::max(whole, last.host_memory.live_total), "var(--host)");
  return "<div class=\"bars\">\n" + out + "</div>\n";
}

std::string event_line(const char* what, const CurveEvent& event) {
  return concat("<p class=\"last-event\"><span>", what, ", step ", units::grouped(event.step),
                "</span> ", dot(event.phase), "<span", event.warns ? " class=\"bad\"" : "", ">",
                html_escaped(event.text), "</span></p>\n");
}

/// Returns the last decision, and the last warning if that is another event.
std::string last_events(const WatchedRun& run) {
  const auto& events = run.content().curves().events();
  if (events.empty()) return "";
  std::string out = event_line("Last event", events.back());
  const auto warning = std::find_if(events.rbegin(), events.rend(),
                                    [](const CurveEvent& event) { return event.warns; });
  if (warning != events.rend() && warning != events.rbegin())
    out += event_line("Last warning", *warning);
  return out;
}

std::string svg_sparkline(const WatchedRun& run) {
  constexpr double kWidth = 120, kHeight = 28;
  const auto& points = run.content().curves().points();
  double low = 0, high = 0;
  std::vector<std::pair<double, double>> values;
  for (const CurvePoint& point : points) {
    if (point.finite_losses == 0) continue;
    const double loss = point.mean_loss();
    low = values.empty() ? loss : std::min(low, loss);
    high = values.empty() ? loss : std::max(high, loss);
    values.emplace_back(static_cast<double>(point.last_step), loss);
  }
  if (values.size() < 2) return "";
  const double first = values.front().first, span = values.back().first - first;
  const std::size_t stride = (values.size() + 239) / 240;
  std::string path;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    const double x = 1 + (kWidth - 2) * (values[i].first - first) / span;
    const double y =
        1 + (kHeight - 2) * (high > low ? (high - values[i].second) / (high - low) : 0.5);
    path += concat(i == 0 ? "M" : "L", units::fixed(x, 1), " ", units::fixed(y, 1));
  }
  return concat(
      "<svg class=\"spark\" width=\"120\" height=\"28\" viewBox=\"0 0 120 28\" role=\"img\" "
      "aria-label=\"loss over steps\"><path d=\"",
      path, "\" fill=\"none\" stroke=\"var(--line)\" stroke-width=\"1.5\"/></svg>");
}

/// Encodes a name for a URL: all except letters, digits and a few signs as %XX.
std::string address_of(const std::string& name) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-_.~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string data_cell(const char* label, const std::string& html, const char* kind = "") {
  return concat("<td class=\"", kind, "\" data-label=\"", label, "\">", html, "</td>");
}

std::string script_of_runs() { return concat("\n", k_runs_js); }

/// Returns a text that differs between servers, also if one replaces another.
const std::string& server_mark() {
  static const std::string mark =
      concat(::getpid(), "-", std::chrono::system_clock::now().time_since_epoch().count());
  return mark;
}

/// Returns the state of a run as HTML: progress, time left, phase, memory, decision, warnings.
std::string live_html(const WatchedRun& run) {
  std::string out = concat("<h2>", state_badge(run));
  if (!run.has_steps()) return out + "no step is completed yet</h2>\n";
  const Phase phase = run.last().phase;
  out += concat("<span>", dot(phase), name_of(phase), "</span> <small>", progress_text(run),
                "</small></h2>\n<div class=\"progress\"><i class=\"phase ", name_of(phase),
                "\" style=\"width:", share_text(run.done_share()), "\"></i></div>\n");
  out += "<div class=\"now\">\n" + live_facts(run) + memory_bars(run) + "</div>\n";
  return out + last_events(run);
}

}  // namespace

std::string live_rows(const WatchedFolder& folder) {
  std::string out;
  for (const auto& run : folder.runs()) {
    out += concat("<tr><th scope=\"row\"><a href=\"run/", address_of(run->name()), "/\">",
                  html_escaped(run->name()), "</a></th>");
    const bool has = run->has_steps();
    const StepRecord& last = run->last();
    out += data_cell("State", state_badge(*run));
    out += data_cell("Loss over steps", has ? svg_sparkline(*run) : "", "curve");
    out += data_cell("Loss", has ? units::fixed(last.loss, 4) : "–");
    const auto& validation = run->summary().final_validation_loss;
    out += data_cell("Validation", validation ? units::fixed(*validation, 4) : "–");
    out += data_cell("Phase",
                     has ? concat("<span>", dot(last.phase), name_of(last.phase), "</span>") : "–");
    out += data_cell("Step", concat(units::grouped(last.step),
                                    run->planned_steps() > 0
                                        ? concat(" / ", units::grouped(run->planned_steps()))
                                        : ""));
    const auto left = run->seconds_left();
    out += data_cell("Left", left ? units::duration(*left) : "–") + "</tr>\n";
  }
  return out;
}

std::string runs_page(const WatchedFolder& folder) {
  return filled_page(k_runs_html, {{"style", concat(report_style(), k_live_css)},
                                   {"policy", html_escaped(runs_policy())},
                                   {"script", script_of_runs()},
                                   {"title", html_escaped(folder.name())},
                                   {"rows", live_rows(folder)}});
}

std::string runs_policy() { return content_policy(script_of_runs()); }

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
    if (fresh.size() > kMaxMessages) fresh.pop_front(), ++first_message_;
  });
  if (change == WatchedRun::Change::kNone) return false;
  if (change == WatchedRun::Change::kReset) {
    ++generations_;
    first_message_ += messages_.size();
    messages_.clear();
  }
  const std::int64_t steps_per_point = run_.content().curves().steps_per_point();
  if (steps_per_point != steps_per_point_) {  // pages cannot merge points themselves
    steps_per_point_ = steps_per_point;
    ++curves_version_;
  }
  for (Message& message : fresh) messages_.push_back(std::move(message));
  while (messages_.size() > kMaxMessages) messages_.pop_front(), ++first_message_;
  update_parts();
  return true;
}

void RunFeed::update_parts() {
  std::map<std::string, std::string> now = run_.content().parts(run_.summary());
  now["now"] = live_html(run_);
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

FeedPosition RunFeed::position_after(const std::string& mine, std::int64_t after) const {
  const FeedPosition on_reset;
  if (!mine.empty() && mine != generation()) return on_reset;
  if (after > run_.last().step || after < 0) return on_reset;
  const std::uint64_t end = first_message_ + messages_.size();
  if (after == run_.last().step) return {generations_, curves_version_, end, 0};
  const auto next =
      std::ranges::find_if(messages_, [&](const Message& message) { return message.step > after; });
  const bool has_gap = next == messages_.begin() && next->step != after + 1 && first_message_ > 0;
  if (next == messages_.end() || has_gap) return on_reset;
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

std::string RunFeed::updates(FeedPosition& place) const {
  std::string text;
  const std::uint64_t end = first_message_ + messages_.size();
  const bool continues = place.generation == generations_ && place.message >= first_message_;
  if (continues) {
    for (; place.message < end; ++place.message)
      text += messages_[place.message - first_message_].text;
  }
  if (!continues || place.curves != curves_version_) {
    text += reset_event();
    place = {generations_, curves_version_, end, continues ? place.parts : 0};
  }
  json::object changed;
  for (const auto& [name, part] : parts_)
    if (part.version > place.parts) changed[name] = part.html;
  place.parts = parts_version_;
  if (!changed.empty()) text += server_event("parts", json_line(changed));
  return text;
}

}  // namespace hybrid_trainer
