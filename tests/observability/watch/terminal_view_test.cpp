#include "src/observability/watch/terminal_view.h"

#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/observability/watch/terminal_drawing.h"
#include "tests/observability/watch/watched_folders.h"

namespace hybrid_trainer {
namespace {

class TerminalViewTest : public testing::WatchTest {
 protected:
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static std::string view(const std::filesystem::path& path, const WindowStyle& window = {}) {
    WatchedFolder folder(path);
    refresh_all(folder);
    return view_of(folder, window);
  }
};

TEST_F(TerminalViewTest, ShowsRunProgress) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 30);
  const std::string frame = view(run);
  for (const char* text :
       {"mine", "correct step 30/40", "75 %", "loss 1.0000", "validation 3.5000", "◆", "pppppp",
        "wwwwww", "of 1.00 MB", "master weights", "learning rate 0.001", "gradient norm 0.7",
        "confidence 0.50", "step 24 correct accepted: loss 3.2 -> 3.1"})
    EXPECT_NE(frame.find(text), std::string::npos) << text << " is missing in\n" << frame;
}

TEST_F(TerminalViewTest, CountsExamplesForNonTextModels) {
  const auto run = begin_run("mine");
  StepRecord record = step_of(1);
  EXPECT_EQ(view(run).find("examples/s"), std::string::npos);
  record.tokens = record.effective_batch;
  JsonlSink(run / "metrics.jsonl").write(record);
  EXPECT_NE(view(run).find("32 examples/s"), std::string::npos) << view(run);
}

TEST_F(TerminalViewTest, LargestPlannedStepsLeavePositiveTime) {
  const auto run = begin_run("mine");
  std::ofstream(run / "config.json") << R"({"training": {"steps": 9223372036854775807}})";
  JsonlSink(run / "metrics.jsonl").write(step_of(-5));
  WatchedRun watched(run, "mine");
  watched.refresh();
  ASSERT_TRUE(watched.seconds_left());
  EXPECT_GT(*watched.seconds_left(), 0);
}

TEST_F(TerminalViewTest, FitsAnyWindowWithoutEscapes) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 30);
  StepRecord record = step_of(31);
  record.event = "\x1b[31m a very long event \a" + std::string(300, 'x');
  JsonlSink(run / "metrics.jsonl").write(record);
  for (const std::size_t columns : {20, 40, 80, 200}) {
    for (const std::size_t rows : {10, 24, 60}) {
      const std::string frame = view(run, {.columns = columns, .rows = rows});
      EXPECT_EQ(frame.find('\x1b'), std::string::npos);
      EXPECT_EQ(frame.find('\a'), std::string::npos);
      const auto lines = lines_of(frame);
      EXPECT_LE(lines.size(), std::max<std::size_t>(rows, 10));
      for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns) << line;
    }
  }
}

TEST_F(TerminalViewTest, UsesColorsWhenEnabled) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 30);
  const std::string frame = view(run, {.columns = 80, .rows = 30, .colors = true});
  EXPECT_NE(frame.find("\x1b[35m▀"), std::string::npos);  // Predict's strip
  EXPECT_EQ(frame.find("pppp"), std::string::npos);
}

TEST_F(TerminalViewTest, ReportsRunWithoutSteps) {
  EXPECT_NE(view(begin_run("new")).find("no step"), std::string::npos);
}

TEST_F(TerminalViewTest, ReportsStartingOrKilledRun) {
  const std::string root = file("starts").string();
  {
    const RunDirectory lock(root, RunMode::kNew);
    std::ofstream(root + "/answers.json") << "{}";
    EXPECT_NE(view(root).find("starting"), std::string::npos);
  }
  EXPECT_THROW(view(root), MissingInput) << "it ended before its first step";
  const auto run = begin_run("killed");
  write_steps(run, 1, 3);
  EXPECT_NE(view(run).find("running"), std::string::npos)
      << "the process may be on another machine";
  if (const pid_t child = ::fork(); child == 0) {
    { RunDirectory(run.string(), RunMode::kResume); }
    ::_exit(0);
  } else {
    ::waitpid(child, nullptr, 0);
  }
  EXPECT_NE(view(run).find("killed"), std::string::npos);
}

TEST_F(TerminalViewTest, ListsRunsOfFolder) {
  write_steps(begin_run("all/one"), 1, 12);
  write_steps(begin_run("all/compared/two"), 1, 40);
  std::filesystem::create_directories(file("all/empty"));
  const std::string list = view(file("all"));
  const auto lines = lines_of(list);
  ASSERT_EQ(lines.size(), 3u) << list;
  EXPECT_EQ(lines[1].find("compared/two"), 0u);
  EXPECT_NE(lines[1].find("40/40"), std::string::npos);
  EXPECT_NE(lines[2].find("12/40"), std::string::npos);
  EXPECT_NE(lines[2].find("█"), std::string::npos);
  for (const std::string& line : lines) EXPECT_LE(columns_of(line), 80u);
}

TEST_F(TerminalViewTest, ShowsHowRunEnded) {
  const auto run = begin_run("mine");
  write_steps(run, 1, 3);
  std::ofstream(run / "summary.json")
      << R"({"end": "diverged", "command": "hybrid train --run mine"})";
  const std::string frame = view(run);
  EXPECT_NE(frame.find("mine  diverged  hybrid train --run mine"), std::string::npos) << frame;
  EXPECT_EQ(frame.find(" left"), std::string::npos);
}

TEST_F(TerminalViewTest, RejectsFolderWithoutRuns) {
  std::filesystem::create_directories(file("empty"));
  EXPECT_THROW(WatchedFolder(file("empty")), MissingInput);
  EXPECT_THROW(WatchedFolder(file("absent")), MissingInput);
}

TEST(BraillePlot, DrawsLineFromCornerToCorner) {
  BraillePlot plot(2, 1);
  plot.draw({0, 1, 2, 3}, 0, 3);
  EXPECT_EQ(plot.rows().front(), (std::vector<std::string>{"⡠", "⠊"}));
}

TEST(BraillePlot, BridgesGapsAndClampsToRange) {
  BraillePlot plot(2, 2);
  plot.draw({std::nullopt, 100, std::nullopt, -100}, 0, 1);
  std::string text;
  for (const auto& row : plot.rows())
    for (const std::string& cell : row) text += cell;
  EXPECT_EQ(text, "⠈⡆ ⢸");
  plot.mark(0, 0.9, 0, 1);
  EXPECT_EQ(plot.rows()[0][0], "◆");
  plot.mark(7, 0.9, 0, 1);  // outside the plot
}

TEST(TextColumns, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(columns_of("aé漢"), 4u);
  EXPECT_EQ(columns_of("e\u0301"), 1u);
  EXPECT_EQ(cut_to("漢字漢字", 5), "漢字…");
  EXPECT_EQ(cut_to("abc", 3), "abc");
  EXPECT_EQ(cut_to("abcd", 3), "ab…");
}

}  // namespace
}  // namespace hybrid_trainer
