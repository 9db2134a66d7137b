#include "src/core/libraries.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

WantedLibrary fake() {
  return {.title = "Fake",
          .files = {"libht_fake.so.13", "libht_fake.so.12"},
          .folders = {"/nowhere", HT_FAKE_FOLDER},
          .hint = "build the tests"};
}

std::string problem_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(SharedLibrary, OpensFirstFileFoundInFolder) {
  const SharedLibrary library = SharedLibrary::open(fake());
  ASSERT_TRUE(library.opened());
  EXPECT_EQ(library.path(), HT_FAKE_FOLDER "/libht_fake.so.12");
  EXPECT_EQ(library.problem(), "");
  EXPECT_EQ(library.function<int(int)>("ht_fake_twice")(21), 42);
}

TEST(SharedLibrary, OpensByLoaderSearchAndReportsPath) {
  const SharedLibrary library = SharedLibrary::try_open(
      {.title = "mathematics", .files = {"libm.so.6"}, .folders = {}, .hint = ""});
  ASSERT_TRUE(library.opened());
  EXPECT_TRUE(library.path().ends_with("/libm.so.6")) << library.path();
  EXPECT_EQ(library.function<double(double)>("floor")(1.5), 1.0);
}

TEST(SharedLibrary, ReportsMissingFunction) {
  const SharedLibrary library = SharedLibrary::open(fake());
  EXPECT_EQ(library.find<int()>("ht_fake_thrice"), nullptr);
  EXPECT_EQ(problem_of([&] { library.function<int()>("ht_fake_thrice"); }),
            "Fake: " HT_FAKE_FOLDER
            "/libht_fake.so.12 has no ht_fake_thrice, so it is another version; build the tests");
}

TEST(SharedLibrary, OpenFailureReportsSearchAndHint) {
  const fs::path folder = fs::temp_directory_path() / "hybrid_trainer_no_library";
  fs::create_directories(folder);
  std::ofstream(folder / "libht_none.so.2") << "no library";
  const WantedLibrary none{.title = "None",
                           .files = {"libht_none.so.2", "libht_none.so.1"},
                           .folders = {"/nowhere", folder},
                           .hint = "install it"};
  const SharedLibrary library = SharedLibrary::try_open(none);
  EXPECT_FALSE(library.opened());
  EXPECT_EQ(library.find<int()>("any"), nullptr);
  const std::string& said = library.problem();
  EXPECT_EQ(problem_of([&] { SharedLibrary::open(none); }), said);
  EXPECT_EQ(problem_of([&] { library.function<int()>("any"); }), said);
  EXPECT_TRUE(said.starts_with("None: cannot open libht_none.so.2 or libht_none.so.1; tried "))
      << said;
  EXPECT_TRUE(said.ends_with("; install it")) << said;
  for (const char* part : {"cannot open shared object file", "in /nowhere", "file too short"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
  }
  EXPECT_EQ(said.find('\n'), std::string::npos);
  fs::remove_all(folder);
}

TEST(SharedLibrary, IsEmptyAfterMove) {
  SharedLibrary first = SharedLibrary::open(fake());
  const SharedLibrary second = std::move(first);
  EXPECT_TRUE(second.opened());
  EXPECT_FALSE(first.opened());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.function<int(int)>("ht_fake_twice")(2), 4);
}

}  // namespace
}  // namespace hybrid_trainer
