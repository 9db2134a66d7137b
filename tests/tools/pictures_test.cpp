// A ViT is fine-tuned on pictures, measured and exported as a user does it.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

class Pictures : public ::testing::Test {
 protected:
  Pictures() {
    std::string rows;
    for (const char* name : {"rgb.png", "grey.png", "rgb.jpg", "turned_6.jpg", "palette.png"})
      for (const char* label : {"bird", "fish"})
        rows += row(golden("images/" + std::string(name)), label);
    write_text(scratch_ / "rows.jsonl", rows);
  }
  static std::string row(const std::string& image, const std::string& label) {
    return json::serialize(json::object{{"image", image}, {"label", label}}) + "\n";
  }
  std::string at(const std::string& name) const { return (scratch_ / name).string(); }
  static void expect_in(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), text.npos) << part << " in\n" << text;
  }
  const TemporaryFolder scratch_;
};

TEST_F(Pictures, AreLearnedMeasuredAndExported) {
  const ProcessResult trained = run_hybrid(
      scratch_.path(), {"finetune", "--model", golden("vit_a"), "--data", at("rows.jsonl"), "--run",
                        at("run"), "--set", "training.threads=1", "--epochs", "2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  expect_in(trained.output + trained.errors,
            {"the head is new", "2 classes", "class.accuracy", "pictures to train on"});

  const ProcessResult measured =
      run_hybrid(scratch_.path(), {"eval", at("run"), "--data", at("rows.jsonl"), "--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.errors;
  const json::object found = json::parse(measured.output).as_object();
  EXPECT_EQ(found.at("examples"), 10);
  EXPECT_EQ(found.at("class.accuracy_interval").as_array().size(), 2u);

  ASSERT_EQ(run_hybrid(scratch_.path(), {"export", at("run"), "--output", at("out")}).exit_code, 0);
  expect_in(read_text(scratch_ / "out/config.json"), {"\"1\": \"fish\"", "\"bird\": 0"});
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "out/preprocessor_config.json"));
  const ProcessResult again =
      run_hybrid(scratch_.path(), {"eval", at("out"), "--data", at("rows.jsonl"), "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_NEAR(json::parse(again.output).as_object().at("loss").to_number<double>(),
              found.at("loss").to_number<double>(), 1e-6);
  expect_in(read_text(scratch_ / "out/README.md"), {"image-classification", "of pictures"});

  const ProcessResult seen = run_hybrid(scratch_.path(), {"inspect", at("out")});
  ASSERT_EQ(seen.exit_code, 0) << seen.errors;
  expect_in(seen.output, {"vit", "bird"});
  const ProcessResult planned =
      run_hybrid(scratch_.path(), {"plan", "--model", at("out"), "--method", "qlora"});
  EXPECT_EQ(planned.exit_code, 0) << planned.errors;
}

TEST_F(Pictures, AreShownAsTheyAreRead) {
  write_text(scratch_ / "rows.jsonl", row(golden("images/rgb.png"), "bird") + "\n" +
                                          row("none.png", "fish") +
                                          row(golden("images/grey.png"), "fish"));
  const ProcessResult all =
      run_hybrid(scratch_.path(), {"rows", at("rows.jsonl"), "--model", golden("vit_a")});
  ASSERT_EQ(all.exit_code, 0) << all.errors;
  expect_in(all.output, {"class 0 bird  1 picture\n", "class 1 fish  1 picture\n", "2 classes"});
  expect_in(all.errors, {"line 3 of", "none.png"});
  const auto shown = [&](const char* line) {
    return run_hybrid(scratch_.path(),
                      {"rows", at("rows.jsonl"), "--model", golden("vit_a"), "--show", line});
  };
  expect_in(shown("4").output, {"grey.png", "label           fish", "1 fish", "pixels of three"});
  EXPECT_EQ(shown("3").exit_code, 65);
  expect_in(shown("3").errors, {"line 3 of", "is refused", "none.png"});
  expect_in(shown("9").errors, {"line 9 of", "has no picture"});
  const json::object read =
      json::parse(
          run_hybrid(scratch_.path(), {"rows", at("rows.jsonl"), "--preset", "vit-tiny", "--json"})
              .output)
          .as_object();
  EXPECT_EQ(read.at("contents").at("class 1 fish"), "1 picture");
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"rows", at("rows.jsonl")});
    const ProcessResult result = run_hybrid(scratch_.path(), more);
    EXPECT_EQ(result.exit_code, 64) << result.errors;
    return result.errors;
  };
  expect_in(refused({}), {"give --model FOLDER, or --preset NAME"});
  expect_in(refused({"--model", golden("vit_a"), "--length", "7"}), {"--length", "reads none"});
  expect_in(refused({"--preset", "tiny"}), {"of text give --model FOLDER"});
}

TEST_F(Pictures, ArePlannedAsFinetuneTrainsThem) {
  const ProcessResult planned = run_hybrid(scratch_.path(), {"plan", "--model", golden("vit_a")});
  ASSERT_EQ(planned.exit_code, 0) << planned.errors;
  expect_in(planned.output, {"finetune --model", "--data EXAMPLES"});
}

TEST_F(Pictures, AreNamedWhereTheyCannotBeRead) {
  write_text(scratch_ / "none.jsonl", row("none.png", "bird"));
  const ProcessResult missing =
      run_hybrid(scratch_.path(), {"eval", golden("vit_a"), "--data", at("none.jsonl")});
  EXPECT_EQ(missing.exit_code, 65);
  expect_in(missing.errors, {"line 1", "none.png"});
  const std::string jpeg = read_text(golden("images/rgb.jpg"));
  write_text(scratch_ / "cut.jpg", jpeg.substr(0, jpeg.size() / 2));
  write_text(scratch_ / "cut.jsonl", row("cut.jpg", "cat"));
  expect_in(
      run_hybrid(scratch_.path(), {"eval", golden("vit_a"), "--data", at("cut.jsonl")}).errors,
      {"cut.jpg", "truncated"});
  write_text(scratch_ / "twice.jsonl", row(golden("images/rgb.jpg"), "crane"));
  expect_in(
      run_hybrid(scratch_.path(), {"eval", golden("vit_a"), "--data", at("twice.jsonl")}).errors,
      {"crane is the name of the classes 2 and 3"});
  expect_in(run_hybrid(scratch_.path(), {"eval", golden("vit_a")}).errors, {"--data is missing"});
  const ProcessResult spoken = run_hybrid(scratch_.path(), {"sample", golden("vit_a")});
  EXPECT_NE(spoken.exit_code, 0);
}

}  // namespace
}  // namespace hybrid_trainer
