#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST(SampledText, SampleStartsWithThePromptAndRepeatsItself) {
  const auto sample = [](const char* seed) {
    return in_trained_folder(
               {"sample", "run", "--prompt", "Line", "--tokens", "30", "--seed", seed})
        .output;
  };
  const std::string text = sample("5");
  EXPECT_EQ(text.rfind("Line", 0), 0u);
  EXPECT_EQ(text.size(), 4u + 30u + 1u);
  EXPECT_EQ(sample("5"), text);
  EXPECT_NE(sample("6"), text);
  const std::vector<std::string> greedy{"sample", "run",           "--prompt=", "--tokens",
                                        "20",     "--temperature", "0"};
  EXPECT_EQ(in_trained_folder(greedy).output, in_trained_folder(greedy).output);
}

TEST(SampledText, SampleSaysWhatThePromptLostAndWhatItForgot) {
  const std::vector<std::string> asked{"sample",   "run", "--prompt", "Line 1 Line 1 Line 1 Line 1",
                                       "--tokens", "4"};
  const ProcessResult text = in_trained_folder(asked);
  EXPECT_NE(text.errors.find("the prompt has 27 tokens and the model's context is 16: the model "
                             "sees its last 12; 15 are left out"),
            std::string::npos)
      << text.errors;
  std::vector<std::string> as_json = asked;
  as_json.push_back("--json");
  const ProcessResult result = in_trained_folder(as_json);
  EXPECT_EQ(result.errors.find("tokens/s"), std::string::npos) << result.errors;
  const auto found = only_object(result.output);
  EXPECT_EQ(
      std::string("Line 1 Line 1 Line 1 Line 1") + found.at("text").as_string().c_str() + "\n",
      text.output);
  EXPECT_EQ(found.at("prompt_tokens").as_int64(), 27);
  EXPECT_EQ(found.at("prompt_tokens_left_out").as_int64(), 15);
  EXPECT_EQ(found.at("forgotten_tokens").as_int64(), 0);
  const auto one = only_object(
      in_trained_folder({"sample", "run", "--prompt", "Line", "--tokens", "1", "--json"}).output);
  EXPECT_TRUE(one.at("tokens_per_second").is_null()) << "one token has no rate";
  EXPECT_NE(in_trained_folder({"sample", "run", "--prompt", "Line", "--tokens", "30"})
                .errors.find("the text outgrew the model's context of 16 tokens"),
            std::string::npos);
  std::vector<std::string> refusing = asked;
  refusing.insert(refusing.end(), {"--context-overflow", "error"});
  const ProcessResult refused = run_hybrid(trained_folder(), refusing);
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_EQ(refused.output, "");
  refusing.back() = "errors";
  EXPECT_EQ(run_hybrid(trained_folder(), refusing).exit_code, 64);
  write_text(trained_folder() / "long.txt", "Line\nLine 1 Line 1 Line 1 Line 1\n");
  EXPECT_NE(in_trained_folder({"sample", "run", "--prompts", "long.txt", "--tokens", "4"})
                .errors.find("long.txt, line 2: the prompt has 27 tokens"),
            std::string::npos);
  const ProcessResult of_file = run_hybrid(
      trained_folder(), {"sample", "run", "--prompts", "long.txt", "--context-overflow", "error"});
  EXPECT_EQ(of_file.output, "") << "refused before the first is written";
  EXPECT_EQ(of_file.exit_code, 65);
}

/// The folder's keys are the defaults of the options.
TEST(SampledText, KeysOfGenerationConfigAreHonoredOrRefused) {
  const fs::path folder = trained_folder() / "keys";
  in_trained_folder({"export", "run", "--output", "keys"});
  fs::copy(trained_folder() / "data/tokenizer.json", folder);
  const auto sample = [&](const std::string& keys, std::vector<std::string> options = {}) {
    write_text(folder / "generation_config.json", keys);
    options.insert(options.begin(), {"sample", "keys", "--prompt", "Line", "--json"});
    return run_hybrid(trained_folder(), options);
  };
  const std::string greedy =
      sample("{}", {"--temperature", "0", "--tokens", "9", "--repetition-penalty", "1.5"}).output;
  const std::string keys = R"({"do_sample": false, "max_new_tokens": 9, "repetition_penalty": 1.5)";
  const ProcessResult by_keys = sample(keys + "}");
  EXPECT_EQ(only_object(by_keys.output).at("text"), only_object(greedy).at("text"));
  EXPECT_NE(by_keys.errors.find("temperature 0, repetition-penalty 1.5"), std::string::npos)
      << by_keys.errors;
  EXPECT_EQ(only_object(sample(keys + "}", {"--tokens", "2"}).output).at("tokens"), 2);
  EXPECT_EQ(only_object(sample(R"({"max_length": 7})").output).at("tokens"), 3)
      << "with the prompt";
  EXPECT_EQ(only_object(sample(R"({"do_sample": true, "top_k": 1, "max_new_tokens": 9})",
                               {"--repetition-penalty", "1.5"})
                            .output)
                .at("text"),
            only_object(greedy).at("text"));
  const std::string text =
      only_object(
          sample(R"({"do_sample": false, "no_repeat_ngram_size": 1})", {"--tokens", "8"}).output)
          .at("text")
          .as_string()
          .c_str();
  const std::string whole = "Line" + text;
  EXPECT_EQ(std::set<char>(whole.begin(), whole.end()).size(), whole.size()) << whole;
  const ProcessResult refused = sample(R"({"bad_words_ids": [[3]]})");
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_NE(refused.errors.find("bad_words_ids"), std::string::npos) << refused.errors;
}

TEST(SampledText, AConversationKeepsItsSystemMessage) {
  const fs::path folder = trained_folder() / "talks";
  in_trained_folder({"export", "run", "--output", "talks"});
  fs::copy(trained_folder() / "data/tokenizer.json", folder);
  write_text(folder / "chat_template.jinja",
             "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} {% "
             "endif %}");
  const std::string command =
      concat("cd '", trained_folder().string(), "' && printf 'one \\n' | '", HT_HYBRID_TOOL,
             "' sample talks --chat --system 'Line' ", "--tokens 3 --temperature 0 2>chat.err");
  ASSERT_EQ(std::system((command + " >chat.out").c_str()), 0);
  EXPECT_EQ(read_text(trained_folder() / "chat.err").find("warning"), std::string::npos);
  const std::string longer = concat(
      "cd '", trained_folder().string(), "' && printf 'Line\\nLine\\nLine\\n' | '", HT_HYBRID_TOOL,
      "' sample talks --chat --system 'Li' --tokens 3 --temperature 0 2>chat.err");
  ASSERT_EQ(std::system((longer + " >chat.out").c_str()), 0);
  const std::string told = read_text(trained_folder() / "chat.err");
  EXPECT_NE(told.find("oldest messages"), std::string::npos) << told;
  EXPECT_NE(told.find("the system message stays"), std::string::npos) << told;
  write_text(folder / "chat_template.jinja", "{{ messages[-1].content }} ");
  ASSERT_EQ(std::system((command + " >chat.out").c_str()), 0);
  const std::string dropped = read_text(trained_folder() / "chat.err");
  EXPECT_NE(dropped.find("ignores --system"), std::string::npos) << dropped;
}

TEST(SampledText, TellsOnlyWhatItsFileSets) {
  const fs::path folder = trained_folder() / "drawn";
  in_trained_folder({"export", "run", "--output", "drawn"});
  fs::copy(trained_folder() / "data/tokenizer.json", folder);
  write_text(folder / "generation_config.json",
             R"({"do_sample": true, "temperature": 0.25, "top_k": 3})");
  const auto told = [&](const std::vector<std::string>& more) {
    std::vector<std::string> asked{"sample", "drawn", "--prompt", "Line", "--tokens", "2"};
    asked.insert(asked.end(), more.begin(), more.end());
    return in_trained_folder(asked).errors;
  };
  EXPECT_NE(told({}).find(": temperature 0.25, top-k 3, where"), std::string::npos) << told({});
  EXPECT_NE(told({"--temperature", "0"}).find(": top-k 3, where"), std::string::npos);
}

TEST(SampledText, PromptsOfAFileAreAnsweredInOrderWithOrWithoutADraft) {
  write_text(trained_folder() / "prompts.txt", "Line\n\nLi\r\n");
  const std::vector<std::string> asked{"sample",      "run",      "--prompts",
                                       "prompts.txt", "--tokens", "9"};
  const std::string output = in_trained_folder(asked).output;
  std::istringstream lines(output);
  std::string line;
  for (const char* prompt : {"Line", "", "Li"}) {
    ASSERT_TRUE(std::getline(lines, line));
    const auto found = only_object(line);
    EXPECT_EQ(found.at("prompt").as_string(), prompt);
    EXPECT_EQ(found.at("tokens").as_int64(), 9);
    EXPECT_FALSE(found.at("text").as_string().empty());
  }
  EXPECT_FALSE(std::getline(lines, line));
  std::vector<std::string> drafted = asked;
  drafted.insert(drafted.end(), {"--draft", "run"});
  EXPECT_EQ(in_trained_folder(drafted).output, output);
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "run", "--prompts", "none.txt"}).exit_code, 66);
  write_text(trained_folder() / "prompts.txt", "Li\nLi\n");
  const std::string twice = in_trained_folder(asked).output;
  const auto text_of = [&](std::size_t begin, std::size_t end) {
    return only_object(twice.substr(begin, end - begin)).at("text");
  };
  const std::size_t end = twice.find('\n') + 1;
  EXPECT_NE(text_of(0, end), text_of(end, twice.size())) << "each has a seed of its own";
}

TEST(SampledText, PromptsWrittenTogetherAreWhatEachIsAlone) {
  const std::vector<std::string> prompts{"Line", "Line 1", "Line 2", "a",  "ine 1", "Ln",
                                         "L",    "nil",    "iii",    " L", "i"};
  std::string file;
  for (const std::string& prompt : prompts) file += prompt + "\n";
  write_text(trained_folder() / "many.txt", file);
  std::vector<std::string> asked{"sample",   "run", "--prompts", "many.txt",
                                 "--tokens", "40",  "--seed",    "3"};
  const std::string together = in_trained_folder(asked).output;
  std::istringstream lines(together);
  std::string line;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    const std::string alone = in_trained_folder({"sample", "run", "--prompt", prompts[i],
                                                 "--tokens", "40", "--seed", std::to_string(3 + i)})
                                  .output;
    const auto found = only_object(line);
    EXPECT_EQ(prompts[i] + found.at("text").as_string().c_str() + "\n", alone) << prompts[i];
  }
  asked.insert(asked.end(), {"--batch", "1"});
  for (const char* batch : {"1", "2", "20"}) {
    asked.back() = batch;
    EXPECT_EQ(in_trained_folder(asked).output, together) << batch;
  }
}

TEST(SampledText, PromptsThatBeginAlikeAreTold) {
  const auto told = [](const std::string& prompts, const char* tokens, const char* batch = "8") {
    write_text(trained_folder() / "alike.txt", prompts);
    return in_trained_folder(
               {"sample", "run", "--prompts", "alike.txt", "--tokens", tokens, "--batch", batch})
               .errors.find(
                   "all prompts begin with the same 6 tokens, which --batch 1 sees once") !=
           std::string::npos;
  };
  EXPECT_TRUE(told("Line 1\nLine 1 Li\n", "2"));
  EXPECT_FALSE(told("Line 1\nLine 1 Li\n", "2", "1"));
  EXPECT_FALSE(told("Line 1\nLine 1 Li\n", "6")) << "as many are made";
  EXPECT_FALSE(told("Line 1\nLine 1Line 1Line\nLine 1Line 1Line\n", "2")) << "less than half";
  EXPECT_FALSE(told("Line 1\nLine 1\nLine 1Line 1Line \n", "2")) << "beyond the context of 16";
  EXPECT_FALSE(told("Line 1\n", "2")) << "one prompt";
}

TEST(SampledText, ABatchWantsAFileOfPromptsAndNoDraft) {
  write_text(trained_folder() / "bad.txt", "Line\nLi\nL\xC3\xA9on\n");
  const auto refused = [](const std::vector<std::string>& arguments, int code, const char* why) {
    std::vector<std::string> all{"sample", "run"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto result = run_hybrid(trained_folder(), all);
    EXPECT_EQ(result.exit_code, code) << why;
    EXPECT_EQ(result.output, "");
    EXPECT_NE(result.errors.find(why), std::string::npos) << result.errors;
  };
  refused({"--prompts", "bad.txt"}, 65, "bad.txt, line 3: ");
  refused({"--prompts", "bad.txt", "--batch", "0"}, 64, "--batch: got 0, want 1 or more");
  refused({"--prompt", "Line", "--batch", "2"}, 64, "--batch goes with --prompts");
  refused({"--chat", "--batch", "2"}, 64, "--batch goes with --prompts");
  refused({"--prompts", "bad.txt", "--draft", "run", "--batch", "2"}, 64, "--draft one");
}

}  // namespace
}  // namespace hybrid_trainer
