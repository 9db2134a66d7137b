#include <boost/json.hpp>
#include <cmath>

#include "tests/tools/finetune_fixture.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class PreferenceFinetune : public Finetune {
 protected:
  PreferenceFinetune() {
    write_text(trained_folder() / "preferred.jsonl",
               "{\"prompt\": \"L\", \"chosen\": \"i\", \"rejected\": \"ne\"}\n"
               "{\"prompt\": \"L\", \"chosen\": \"i\", \"rejected\": \"i\"}\n"
               "{\"prompt\": \"Li\", \"chosen\": \"n\", \"rejected\": \"ee\"}\n"
               "{\"prompt\": \"Line\", \"chosen\": \" \", \"rejected\": \"Line\"}\n");
  }
  ProcessResult prefer(const std::string& objective, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--model", "base", "--data", "preferred.jsonl", "--run", "tuned",
                               "--objective", objective});
    return finetune(more);
  }
};

TEST_F(PreferenceFinetune, TrainsOnPairsAndItsRunIsEvaluatedAndExported) {
  for (const char* objective : {"dpo", "orpo"}) {
    for (const char* method : {"full", "lora", "qlora"}) {
      fs::remove_all(trained_folder() / "tuned");
      const ProcessResult result =
          prefer(objective, {"--method", method, "--set", "training.steps=6", "--set",
                             "optimizer.learning_rate=1e-3", "--json"});
      ASSERT_EQ(result.exit_code, 0) << objective << method << result.errors;
      EXPECT_EQ(fs::exists(trained_folder() / "tuned/reference.bin"), objective[0] == 'd');
      const ProcessResult eval = run_hybrid(trained_folder(), {"eval", "tuned", "--json"});
      ASSERT_EQ(eval.exit_code, 0) << eval.errors;
      const auto found = only_object(eval.output);
      EXPECT_NEAR(found.at("loss").to_number<double>(),
                  only_object(result.output).at("final_validation_loss").to_number<double>(), 1e-6);
      EXPECT_EQ(found.at("objective").as_string(), objective);
      EXPECT_TRUE(found.contains("preference_accuracy") && found.contains("reward_margin"));
      fs::remove_all(trained_folder() / "preferred_out");
      std::vector<std::string> exported{"export", "tuned", "--output", "preferred_out"};
      if (method[0] != 'f') exported.emplace_back("--adapter");
      EXPECT_EQ(run_hybrid(trained_folder(), exported).exit_code, 0);
      const ProcessResult longer =
          finetune({"--resume", "--run", "tuned", "--set", "training.steps=8", "--json"});
      ASSERT_EQ(longer.exit_code, 0) << longer.errors;
      EXPECT_EQ(only_object(longer.output).at("steps").as_int64(), 8);
    }
  }
}

TEST_F(PreferenceFinetune, MeasuresOtherPairsAgainstTheModelThatItBeganWith) {
  write_text(trained_folder() / "other.jsonl",
             "{\"prompt\": \"Li\", \"chosen\": \"ne\", \"rejected\": \"i\"}\n"
             "{\"prompt\": \"L\", \"chosen\": \"in\", \"rejected\": \"ee\"}\n");
  const auto measured = [&] {
    const ProcessResult eval =
        run_hybrid(trained_folder(), {"eval", "tuned", "--data", "other.jsonl", "--json"});
    EXPECT_EQ(eval.exit_code, 0) << eval.errors;
    return eval.exit_code == 0 ? only_object(eval.output) : boost::json::object();
  };
  for (const char* objective : {"dpo", "orpo"}) {
    for (const char* method : {"full", "lora"}) {
      fs::remove_all(trained_folder() / "tuned");
      const ProcessResult run = prefer(
          objective, {"--method", method, "--validation", "other.jsonl", "--set",
                      "training.steps=6", "--set", "optimizer.learning_rate=1e-3", "--json"});
      ASSERT_EQ(run.exit_code, 0) << objective << method << run.errors;
      const auto found = measured();
      EXPECT_EQ(found.at("pairs").to_number<int>(), 2);
      EXPECT_NEAR(found.at("loss").to_number<double>(),
                  only_object(run.output).at("final_validation_loss").to_number<double>(), 1e-6)
          << objective << method;
    }
  }
}

TEST_F(PreferenceFinetune, TakesABaseWithItsAdapterAsTheReference) {
  const fs::path root = trained_folder();
  fs::remove_all(root / "sft");
  ASSERT_EQ(of_pairs({"--method", "lora", "--set", "training.steps=20", "--set",
                      "optimizer.learning_rate=1e-2"})
                .exit_code,
            0);
  ASSERT_EQ(run_hybrid(root, {"export", "tuned", "--adapter", "--output", "sft"}).exit_code, 0);
  fs::remove_all(root / "tuned");
  const ProcessResult run =
      prefer("dpo", {"--adapter", "sft", "--set", "training.steps=2", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_NEAR(records_of(root / "tuned").front().loss, std::log(2.0), 1e-6);
  fs::copy_file(root / "preferred.jsonl", root / "other.jsonl",
                fs::copy_options::overwrite_existing);
  const auto measured = [&] {
    return run_hybrid(root, {"eval", "tuned", "--data", "other.jsonl", "--json"});
  };
  EXPECT_EQ(measured().exit_code, 0) << measured().errors;
  fs::rename(root / "sft/adapter_model.safetensors", root / "sft/kept");
  fs::copy_file(root / "base/model.safetensors", root / "sft/adapter_model.safetensors");
  EXPECT_EQ(measured().exit_code, 65) << "the reference is another one";
}

TEST_F(PreferenceFinetune, TakesItsSettingsAndKeepsThem) {
  ASSERT_EQ(prefer("dpo", {"--beta", "0.5", "--set", "training.steps=2"}).exit_code, 0);
  const auto config = only_object(read_text(trained_folder() / "tuned/config.json"));
  EXPECT_EQ(config.at("objective").as_string(), "dpo");
  EXPECT_EQ(config.at("preference_beta").to_number<double>(), 0.5);
  EXPECT_EQ(config.at("optimizer").at("learning_rate").to_number<double>(), 1e-6);
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--resume", "--run", "tuned"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = finetune(arguments);
    EXPECT_EQ(result.exit_code, 64) << result.errors;
    return result.errors;
  };
  EXPECT_NE(refusal({"--objective", "orpo"}).find("the run trains dpo"), std::string::npos);
  EXPECT_NE(refusal({"--beta", "0.1"}).find("the run trains with 0.5"), std::string::npos);
}

TEST_F(PreferenceFinetune, NamesBadInput) {
  EXPECT_EQ(prefer("dpop").exit_code, 64);
  EXPECT_EQ(prefer("masked").exit_code, 64);
  EXPECT_EQ(prefer("dpo", {"--beta", "0"}).exit_code, 78);
  const ProcessResult plain = of_pairs({"--beta", "0.1"});
  EXPECT_EQ(plain.exit_code, 64);
  EXPECT_NE(plain.errors.find("--beta goes with --objective dpo or orpo"), std::string::npos);
  const ProcessResult rows = of_pairs({"--objective", "dpo"});
  EXPECT_EQ(rows.exit_code, 65) << rows.errors;
  EXPECT_NE(rows.errors.find("every line is refused"), std::string::npos) << rows.errors;
  const ProcessResult refused = prefer("dpo", {"--set", "training.steps=1"});
  EXPECT_NE(refused.errors.find("line 2 of preferred.jsonl is refused: its \"chosen\" and "
                                "\"rejected\" are equal"),
            std::string::npos)
      << refused.errors;
}

TEST_F(PreferenceFinetune, IsPlannedWithItsReference) {
  const ProcessResult plan = run_hybrid(
      trained_folder(),
      {"plan", "--model", "base", "--method", "full", "--set", "objective=dpo", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.errors;
  const auto found = only_object(plan.output);
  const auto& phases = found.at("phases").as_object();
  EXPECT_GT(phases.at("reference").at("peak_bytes").as_int64(), 0);
  EXPECT_LT(phases.at("reference").at("peak_bytes").as_int64(),
            phases.at("full").at("peak_bytes").as_int64());
  const ProcessResult plain =
      run_hybrid(trained_folder(), {"plan", "--model", "base", "--method", "full", "--json"});
  EXPECT_FALSE(only_object(plain.output).at("phases").as_object().contains("reference"));
}

TEST_F(PreferenceFinetune, RowsShowBothAnswers) {
  const ProcessResult rows = run_hybrid(
      trained_folder(),
      {"rows", "preferred.jsonl", "--model", "base", "--objective", "dpo", "--show", "1"});
  ASSERT_EQ(rows.exit_code, 0) << rows.errors;
  EXPECT_EQ(rows.output, "chosen: L⟦i⟧\nrejected: L⟦ne⟧\n");
  EXPECT_NE(rows.errors.find("line 2 is refused"), std::string::npos) << rows.errors;
  const ProcessResult other =
      run_hybrid(trained_folder(), {"rows", "preferred.jsonl", "--model", "base"});
  EXPECT_NE(other.errors.find("--objective dpo"), std::string::npos) << other.errors;
}

}  // namespace
}  // namespace hybrid_trainer
