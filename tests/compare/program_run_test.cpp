#include "src/compare/run_outcome.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "hybrid_trainer/core/interruption.h"
#include "src/core/clock.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class ProgramRun : public ::testing::Test {
 protected:
  std::string run(const std::vector<std::string>& command) {
    return run_program({command, folder_.path(), folder_ / "out", folder_ / "err"}, interruption_);
  }
  TemporaryFolder folder_;
  Interruption interruption_;
};

TEST_F(ProgramRun, WritesOutputToFilesWithoutShell) {
  EXPECT_EQ(run({"sh", "-c", "pwd; echo \"$0\"; cat; echo problem >&2", "$HOME;x"}), "");
  EXPECT_EQ(read_text(folder_ / "out"),
            std::filesystem::canonical(folder_.path()).string() + "\n$HOME;x\n");
  EXPECT_EQ(read_text(folder_ / "err"), "problem\n");
}

TEST_F(ProgramRun, ReportsHowProgramFailed) {
  EXPECT_EQ(run({"sh", "-c", "exit 3"}), "ended with exit status 3");
  EXPECT_NE(run({"sh", "-c", "kill -9 $$"}).find("killed by signal 9"), std::string::npos);
  EXPECT_NE(run({"no-such-program"}).find("cannot be started: No such file"), std::string::npos);
}

TEST_F(ProgramRun, StopRequestEndsProgram) {
  const std::jthread stop([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::kill(::getpid(), SIGTERM);
  });
  const auto begin = Clock::now();
  EXPECT_NE(run({"sh", "-c", "sleep 60 & wait"}).find("killed by signal 15"), std::string::npos);
  EXPECT_LT(seconds_since(begin), 20);
}

TEST(ProgramOutput, ParsesLossesAndCountsOtherLines) {
  const ProgramOutput found = parse_program_output(
      "loading\n"
      R"({"step":5,"tokens":100,"seconds":0.5,"validation_loss":3.5,"more":1})"
      "\n\n"
      R"({"step":10,"tokens":200,"seconds":1,"validation_loss":3,"flops":1e9})"
      "\n"
      R"({"step":11,"tokens":200,"seconds":1})"
      "\n[1]\n");
  ASSERT_EQ(found.lines.size(), 2u);
  EXPECT_EQ(found.lines[1].step, 10);
  EXPECT_EQ(found.lines[1].tokens, 200);
  EXPECT_EQ(found.lines[1].validation_loss, 3);
  EXPECT_EQ(found.lines[1].flops, 1e9);
  EXPECT_FALSE(found.lines[0].flops);
  EXPECT_EQ(found.junk_lines, 3);
  EXPECT_EQ(found.first_junk, "loading");
  EXPECT_EQ(found.problem, "");
}

TEST(ProgramOutput, RejectsNonFiniteNumbers) {
  for (const char* number : {"NaN", "nan", "Infinity", "-inf"}) {
    const std::string line =
        std::string(R"({"step":5,"tokens":1,"seconds":1,"validation_loss": )") + number + "}";
    const ProgramOutput found = parse_program_output(line);
    EXPECT_NE(found.problem.find("not finite"), std::string::npos) << number;
    EXPECT_TRUE(found.lines.empty());
  }
}

}  // namespace
}  // namespace hybrid_trainer
