#include "src/observability/watch/watch_server.h"

#include <boost/json.hpp>
#include <memory>
#include <regex>
#include <thread>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "src/files/escaped_text.h"
#include "src/files/text.h"
#include "src/observability/watch/run_feed.h"
#include "tests/observability/watch/http_client.h"
#include "tests/observability/watch/watched_folders.h"

namespace hybrid_trainer {
namespace {

using testing::HttpClient;

class WatchServerTest : public testing::WatchTest {
 protected:
  void serve(const std::filesystem::path& path) {
    folder_.emplace(path);
    server_.emplace(*folder_, 0);
    thread_ = std::thread([this] { server_->run(0.02); });
  }
  void TearDown() override {
    if (server_) server_->stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    Folder::TearDown();
  }
  std::string get(const std::string& path, const std::string& headers = "") const {
    return HttpClient(server_->port(), HttpClient::get(path, headers)).rest();
  }
  static std::string body_of(const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }
  /// Ids of all messages.
  static std::vector<std::int64_t> ids_of(const std::string& events) {
    static const std::regex id("(^|\n)id: (\\d+)\ndata");
    std::vector<std::int64_t> ids;
    for (auto found = std::sregex_iterator(events.begin(), events.end(), id);
         found != std::sregex_iterator(); ++found)
      ids.push_back(std::stoll((*found)[2]));
    return ids;
  }
  std::optional<WatchedFolder> folder_;
  std::optional<WatchServer> server_;
  std::thread thread_;
};

using Steps = std::vector<std::int64_t>;

TEST_F(WatchServerTest, PageHasNoExternalReferences) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 30);
  serve(run);
  const std::string page = get("/");
  EXPECT_TRUE(page.starts_with("HTTP/1.0 200 OK")) << page.substr(0, 200);
  EXPECT_NE(page.find("EventSource"), std::string::npos);
  EXPECT_NE(page.find("id=\"now\""), std::string::npos);
  const std::string body = body_of(page);
  EXPECT_EQ(body.find("http:"), std::string::npos);
  EXPECT_FALSE(std::regex_search(body, std::regex(R"((src|href)\s*=|@import|url\((?!#))")));
}

TEST_F(WatchServerTest, SendsEachStepRecordOnce) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 3);
  serve(run);
  HttpClient viewer(server_->port(), HttpClient::get("/events"));
  ASSERT_TRUE(viewer.waits_for("id: 3\n"));
  write_steps(run, 4, 4);
  ASSERT_TRUE(viewer.waits_for("id: 4\n", 2)) << "later than 2 seconds";
  ASSERT_TRUE(viewer.waits_for("event: parts"));
  EXPECT_EQ(ids_of(viewer.received()), (Steps{1, 2, 3, 4}));
  EXPECT_NE(viewer.received().find("content-type: text/event-stream") == std::string::npos
                ? viewer.received().find("Content-Type: text/event-stream")
                : 0,
            std::string::npos);
  for_each_record(run / "metrics.jsonl", [&](const StepRecord& record) {
    EXPECT_NE(viewer.received().find("data: " + json_of_record(record) + "\n\n"),
              std::string::npos);
  });
}

TEST_F(WatchServerTest, ReconnectedViewerMissesNoStep) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 5);
  serve(run);
  {
    HttpClient viewer(server_->port(), HttpClient::get("/events"));
    ASSERT_TRUE(viewer.waits_for("id: 5\n"));
  }
  write_steps(run, 6, 9);
  HttpClient again(server_->port(), HttpClient::get("/events?after=2", "Last-Event-ID: 5\r\n"));
  ASSERT_TRUE(again.waits_for("id: 9\n"));
  EXPECT_EQ(ids_of(again.received()), (Steps{6, 7, 8, 9}));
  EXPECT_EQ(again.received().find("event: reset"), std::string::npos);
}

TEST_F(WatchServerTest, ResetsViewerAfterRollback) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 9);
  serve(run);
  HttpClient viewer(server_->port(), HttpClient::get("/events"));
  ASSERT_TRUE(viewer.waits_for("id: 9\n"));
  viewer.forget();
  JsonlSink(run / "metrics.jsonl").truncate_after(4);
  ASSERT_TRUE(viewer.waits_for("event: reset\ndata: {\"generation\":"));
  ASSERT_TRUE(viewer.waits_for("\"step\":4,\"curves\":{"));
  write_steps(run, 5, 6);
  ASSERT_TRUE(viewer.waits_for("id: 6\ndata"));
  EXPECT_EQ(ids_of(viewer.received()), (Steps{5, 6}));
}

TEST_F(WatchServerTest, ResetsReconnectedViewerAfterRollback) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 9);
  serve(run);
  const std::string page = get("/");
  std::smatch generation;
  ASSERT_TRUE(std::regex_search(page, generation, std::regex("\"generation\":\"([-0-9]+)\"")));
  const std::string address = concat("/events?after=9&generation=", generation[1].str());
  {
    HttpClient viewer(server_->port(), HttpClient::get(address));
    ASSERT_TRUE(viewer.waits_for("event: parts"));
    EXPECT_EQ(viewer.received().find("event: reset"), std::string::npos);
    JsonlSink(run / "metrics.jsonl").truncate_after(4);
    ASSERT_TRUE(viewer.waits_for("event: reset"));
  }
  write_steps(run, 5, 12);  // past the viewer's last step
  HttpClient again(server_->port(), HttpClient::get(address, "Last-Event-ID: 9\r\n"));
  EXPECT_TRUE(again.waits_for("event: reset"));
}

TEST_F(WatchServerTest, ServesPrometheusMetricsAndSummary) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 16);
  serve(run);
  const std::string metrics = body_of(get("/metrics"));
  EXPECT_NE(metrics.find("# TYPE hybrid_step gauge\nhybrid_step{run=\"mine\"} 16\n"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("hybrid_phase{run=\"mine\",phase=\"predict\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("hybrid_decisions_total{run=\"mine\",decision=\"accepted\"} 2\n"),
            std::string::npos);
  const boost::json::value summary = boost::json::parse(body_of(get("/summary.json")));
  EXPECT_EQ(summary.at("steps").as_int64(), 16);
  std::ofstream(run / "summary.json") << "{\"end\": \"finished\", \"steps\": 16}\n";
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(body_of(get("/summary.json")), "{\"end\":\"finished\",\"steps\":16}\n");
}

/// The Content-Security-Policy header of an answer.
std::string policy_of(const std::string& answer) {
  static const std::regex header("Content-Security-Policy: ([^\\r]*)");
  std::smatch found;
  return std::regex_search(answer, found, header) ? found[1].str() : "";
}

TEST_F(WatchServerTest, PolicyAllowsOnlyOwnScript) {
  static const std::regex script("<script>([^]*?)</script>");
  write_steps(begin_run("all/one"), 1, 3);
  serve(file("all"));
  for (const char* const path : {"/", "/run/one/"}) {
    const std::string page = get(path), policy = policy_of(page);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(page, found, script)) << path;
    EXPECT_EQ(policy, content_policy(found[1].str()) + "; frame-ancestors 'none'") << path;
    EXPECT_EQ(policy.find("script-src 'unsafe-inline'"), policy.npos);
    EXPECT_NE(page.find("<meta http-equiv=\"Content-Security-Policy\" content=\"" +
                        html_escaped(content_policy(found[1].str()))),
              page.npos);
    EXPECT_FALSE(std::regex_search(page, std::regex("<[^>]* on[a-z]+="))) << path;
  }
  EXPECT_NE(policy_of(get("/metrics")).find("script-src 'none'"), std::string::npos);
}

/// The folder is untrusted.
TEST_F(WatchServerTest, EscapesNamesFromRunFolder) {
  const std::string evil = "<img src=x onerror=alert(1)>";
  const auto run = begin_run("all/" + evil);
  write_steps(run, 1, 2);
  write_steps(begin_run("all/bad\xFF\"name\n"), 1, 2);
  serve(file("all"));
  HttpClient viewer(server_->port(),
                    HttpClient::get("/run/%3Cimg%20src=x%20onerror=alert(1)%3E/events"));
  ASSERT_TRUE(viewer.waits_for("id: 2\n"));
  std::string line = text_of(run / "metrics.jsonl");
  line = line.substr(0, line.find('\n'));
  line.replace(line.find("\"step\":1"), 8, "\"step\":3");
  line.replace(line.find("\"live_bytes\":{"), 14, "\"live_bytes\":{\"" + evil + "\":5,");
  std::ofstream(run / "metrics.jsonl", std::ios::app)
      << "{\"" << evil << "\":1," << line.substr(1) << "\n";
  ASSERT_TRUE(viewer.waits_for("id: 3\ndata"));
  ASSERT_TRUE(viewer.waits_for("event: parts"));
  EXPECT_EQ(viewer.received().find("<img"), std::string::npos) << "records were rewritten";
  for (const char* const path : {"/", "/run/%3Cimg%20src=x%20onerror=alert(1)%3E/"})
    EXPECT_EQ(get(path).find("<img"), std::string::npos) << path;
  const std::string metrics = body_of(get("/metrics"));
  EXPECT_NE(metrics.find("hybrid_step{run=\"bad\xEF\xBF\xBD\\\"name\\n\"} 2\n"), std::string::npos)
      << metrics;
  for (const char* const path : {"/", "/metrics", "/summary.json"}) {
    const std::string body = body_of(get(path));
    EXPECT_EQ(valid_utf8_bytes(body, 0), body.size()) << path;
  }
}

TEST_F(WatchServerTest, RejectsForeignHostsAndBadRequests) {
  const auto run = begin_run("mine");
  serve(run);
  const auto status = [&](const std::string& request) {
    return HttpClient(server_->port(), request).rest().substr(9, 3);
  };
  EXPECT_EQ(status("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n"), "403");
  EXPECT_EQ(status("GET / HTTP/1.0\r\nHost: 127.0.0.1:9\r\n\r\n"), "200");
  EXPECT_EQ(status("POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), "405");
  EXPECT_EQ(status(HttpClient::get("/../config.json")), "404");
  EXPECT_EQ(status(HttpClient::get("/run/mine/")), "404");
  EXPECT_EQ(status(HttpClient::get("?after=1")), "404");
  EXPECT_EQ(HttpClient(server_->port(), "nonsense\r\n\r\n").rest(), "");
}

TEST_F(WatchServerTest, ListsRunsOfFolderAndUpdatesThem) {
  write_steps(begin_run("all/one"), 1, 12);
  write_steps(begin_run("all/deep/a & b"), 1, 3);
  serve(file("all"));
  const std::string page = get("/");
  EXPECT_NE(page.find("<a href=\"run/deep/a%20%26%20b/\">deep/a &amp; b</a>"), std::string::npos);
  EXPECT_NE(page.find("class=\"spark\""), std::string::npos);
  EXPECT_NE(get("/run/deep/a%20%26%20b/").find("<title>deep/a &amp; b"), std::string::npos);
  HttpClient steps(server_->port(), HttpClient::get("/run/one/events"));
  EXPECT_TRUE(steps.waits_for("id: 12\n"));
  HttpClient list(server_->port(), HttpClient::get("/events"));
  EXPECT_TRUE(list.waits_for("event: parts"));
  const auto summaries = boost::json::parse(body_of(get("/summary.json")));
  EXPECT_EQ(summaries.at("runs").at("one").at("steps").as_int64(), 12);
  list.forget();
  write_steps(file("all/one"), 13, 14);
  EXPECT_TRUE(list.waits_for("14 / 40"));
}

TEST_F(WatchServerTest, AcceptsViewersAfterOthersLeave) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 3);
  serve(run);
  {
    std::vector<std::unique_ptr<HttpClient>> viewers;
    for (int i = 0; i < 140; ++i)
      viewers.push_back(
          std::make_unique<HttpClient>(server_->port(), HttpClient::get("/events?after=3")));
    ASSERT_TRUE(viewers.front()->waits_for("event: parts"));
    EXPECT_EQ(get("/metrics"), "") << "connections beyond the limit are closed immediately";
  }
  std::string metrics;
  for (int i = 0; i < 50 && metrics.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    metrics = get("/metrics");
  }
  EXPECT_NE(metrics.find("hybrid_step"), std::string::npos);
}

TEST_F(WatchServerTest, UsedPortThrowsInUse) {
  serve(begin_run("mine"));
  EXPECT_THROW(WatchServer(*folder_, server_->port()), InUse);
}

TEST_F(WatchServerTest, SendsStepsAndCurvesWhenPointsMerge) {
  const auto run = begin_run("mine");
  constexpr auto kMax = static_cast<std::int64_t>(Curves::kMaxPoints);
  write_steps(run, 1, kMax);
  WatchedRun watched(run, "mine");
  RunFeed feed(watched);
  feed.refresh();
  FeedPosition place = feed.position_after("", kMax);
  feed.updates(place);
  write_steps(run, kMax + 1, kMax + 2);
  feed.refresh();
  const std::string updates = feed.updates(place);
  EXPECT_EQ(ids_of(updates), (Steps{kMax + 1, kMax + 2}));
  EXPECT_NE(updates.find("event: reset"), std::string::npos);
  EXPECT_NE(updates.find("\"stepsPerPoint\":2,"), std::string::npos);
  write_steps(run, kMax + 3, kMax + 3);
  feed.refresh();
  EXPECT_EQ(feed.updates(place).find("event: reset"), std::string::npos);
}

TEST_F(WatchServerTest, SendsCurvesIfViewerMissedManySteps) {
  const auto run = begin_run("mine");
  constexpr auto kMax = static_cast<std::int64_t>(RunFeed::kMaxMessages);
  write_steps(run, 1, kMax + 10);
  WatchedRun watched(run, "mine");
  RunFeed feed(watched);
  EXPECT_TRUE(feed.refresh());
  FeedPosition behind = feed.position_after("", 5), near = feed.position_after("", 10);
  EXPECT_NE(feed.updates(behind).find("event: reset"), std::string::npos);
  const std::string updates = feed.updates(near);
  EXPECT_EQ(updates.find("event: reset"), std::string::npos);
  EXPECT_EQ(ids_of(updates).size(), RunFeed::kMaxMessages);
  EXPECT_EQ(ids_of(updates).front(), 11);
  EXPECT_EQ(feed.updates(near), "");
}

}  // namespace
}  // namespace hybrid_trainer
