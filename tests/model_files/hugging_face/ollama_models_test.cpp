#include "src/model_files/gguf/gguf_model.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// A folder as written by `ollama pull`.
class OllamaModels : public ::testing::Test {
 protected:
  void add(const std::string& manifest, const std::string& layers) const {
    const fs::path file = folder_ / "manifests" / manifest;
    fs::create_directories(file.parent_path());
    write_text(file, concat(R"({"schemaVersion":2,"mediaType":)"
                            R"("application/vnd.docker.distribution.manifest.v2+json","config":)"
                            R"({"mediaType":"application/vnd.docker.container.image.v1+json",)"
                            R"("digest":"sha256:c0","size":3},"layers":[)",
                            layers, "]}"));
  }
  void add_blob(const std::string& name) const {
    fs::create_directories(folder_ / "blobs");
    write_text(folder_ / "blobs" / name, "GGUF");
  }
  static std::string layer(const std::string& kind, const std::string& digest) {
    return concat(R"({"mediaType":"application/vnd.ollama.image.)", kind, R"(","digest":"sha256:)",
                  digest, R"(","size":4})");
  }
  template <class Error>
  std::string problem_of(const std::string& name) const {
    try {
      ollama_model(folder_.path(), name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  const TemporaryFolder folder_;
};

TEST_F(OllamaModels, AreFoundByOllamaNames) {
  const std::string layers =
      concat(layer("model", "aa"), ",", layer("template", "bb"), ",", layer("params", "cc"));
  add("registry.ollama.ai/library/smollm2/latest", layers);
  add("registry.ollama.ai/library/smollm2/135m", layer("model", "dd"));
  add("registry.ollama.ai/someone/tuned/v1", layer("model", "aa"));
  add("hf.co/someone/model-GGUF/Q4_K_M", layer("model", "dd"));
  add_blob("sha256-aa");
  add_blob("sha256:dd");  // Ollama's former name
  const fs::path aa = folder_ / "blobs" / "sha256-aa", dd = folder_ / "blobs" / "sha256:dd";
  EXPECT_EQ(ollama_model(folder_.path(), "smollm2"), aa);
  EXPECT_EQ(ollama_model(folder_.path(), "smollm2:latest"), aa);
  EXPECT_EQ(ollama_model(folder_.path(), "smollm2:135m"), dd);
  EXPECT_EQ(ollama_model(folder_.path(), "someone/tuned:v1"), aa);
  EXPECT_EQ(ollama_model(folder_.path(), "hf.co/someone/model-GGUF:Q4_K_M"), dd);
  EXPECT_EQ(ollama_models(folder_.path()),
            (std::vector<std::string>{"hf.co/someone/model-GGUF:Q4_K_M", "smollm2:135m",
                                      "smollm2:latest", "someone/tuned:v1"}));
}

TEST_F(OllamaModels, MissingModelSuggestsAvailableOnes) {
  EXPECT_NE(problem_of<MissingInput>("smollm2").find("ollama pull"), std::string::npos);
  add("registry.ollama.ai/library/smollm2/latest", layer("model", "aa"));
  EXPECT_NE(problem_of<MissingInput>("smolm2:latest").find("did you mean smollm2:latest?"),
            std::string::npos)
      << problem_of<MissingInput>("smolm2:latest");
  EXPECT_NE(problem_of<MissingInput>("smollm2").find("does not exist; it contained the weights"),
            std::string::npos);
  EXPECT_NE(problem_of<MissingInput>("").find("no model"), std::string::npos);
  EXPECT_NE(problem_of<MissingInput>("../../x").find("no model"), std::string::npos);
}

TEST_F(OllamaModels, InvalidDigestsAreRejected) {
  add_blob("sha256-aa");
  write_text(folder_ / "elsewhere", "GGUF");
  for (const std::string& digest :
       {(folder_ / "elsewhere").string(), std::string("../elsewhere"), std::string("sha256:../x"),
        std::string("sha256-aa/../../elsewhere"), std::string("sha256:"), std::string("md5:aa"),
        std::string("aa"), std::string(), std::string("SHA256:aa"), std::string("sha256:AA")}) {
    add("registry.ollama.ai/library/a/latest",
        concat(R"({"mediaType":"application/vnd.ollama.image.model","digest":")", digest, R"("})"));
    EXPECT_NE(problem_of<DataError>("a").find("want sha256:"), std::string::npos) << digest;
  }
}

TEST_F(OllamaModels, ManifestsWithoutSingleFileAreRejected) {
  add("registry.ollama.ai/library/a/latest",
      concat(layer("model", "aa"), ",", layer("adapter", "bb")));
  add("registry.ollama.ai/library/b/latest",
      concat(layer("model", "aa"), ",", layer("model", "bb")));
  add("registry.ollama.ai/library/c/latest", "");
  add("registry.ollama.ai/library/d/latest", R"({"digest":"sha256:aa"})");
  EXPECT_NE(problem_of<DataError>("a").find("is an adapter"), std::string::npos);
  EXPECT_NE(problem_of<DataError>("b").find("has 2 weight files"), std::string::npos);
  EXPECT_NE(problem_of<DataError>("c").find("has 0 weight files"), std::string::npos);
  EXPECT_NE(problem_of<DataError>("d").find("is not an Ollama manifest"), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
