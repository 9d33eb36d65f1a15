// Temporary folders, sample rows and child processes for the tests of the store.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/admin.h"
#include "cache/schema.h"
#include "cache/store.h"

namespace quern::cache {

// A folder that anyone may enter, removed with its contents; in memory where that can be had, for the store syncs at every row.
class TempDir {
 public:
  TempDir() {
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = access(memory.c_str(), W_OK) == 0 && std::filesystem::space(memory).available > (std::uintmax_t{32} << 20);
    std::string name = ((in_memory ? memory : std::filesystem::temp_directory_path()) / "quern-store-XXXXXX").string();
    path_ = mkdtemp(name.data());
    std::filesystem::permissions(path_, std::filesystem::perms::all);
  }
  TempDir(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Every file of a folder with its bytes. No store of this process may be open on it: closing a file drops the process's locks on it.
inline std::map<std::string, std::string> snapshot(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files[entry.path().filename()] = entry.is_directory() ? "folder" : read_bytes(entry.path());
  return files;
}

inline Key sample_key(int n) { return KeyBuilder().field("sample", std::to_string(n)).finish(); }

inline Artifact sample_artifact(int n, std::size_t size = 3000) {
  Artifact a;
  a.bytes.resize(size);
  for (std::size_t i = 0; i < size; ++i) a.bytes[i] = static_cast<std::byte>((i * 7 + i / 251 + static_cast<std::size_t>(n) * 31) & 0xff);
  a.format = "cubin";
  a.name = "gemv_q8 q4_0 #" + std::to_string(n);
  a.target = "sm_90a";
  a.compiler = "NVRTC 13.0";
  a.generator_version = kGeneratorVersion;
  a.usage_json = "{\"registers\":" + std::to_string(32 + n) + "}";
  a.log = "ptxas info\n";
  a.key_dump = "source: 12 0123456789abcdef\n";
  a.compile_ms = 17.5 + n;
  return a;
}

inline bool same(const Artifact& a, const Artifact& b) {
  return a.bytes == b.bytes && a.format == b.format && a.name == b.name && a.target == b.target && a.compiler == b.compiler &&
         a.generator_version == b.generator_version && a.usage_json == b.usage_json && a.log == b.log && a.key_dump == b.key_dump &&
         a.compile_ms == b.compile_ms;
}

inline TuningKey sample_tuning(int n, const std::string& generator_version = kGeneratorVersion) {
  return {"mul_mat q4_0 planar m=" + std::to_string(n) + " n=4096 k=4096", "NVIDIA H200 | sm_90a | 132 SMs | 140 GiB | 2000 MHz",
          generator_version};
}

inline StoredMeasurement sample_measurement(int n, int warps = 4) {
  StoredMeasurement row;
  row.key = sample_tuning(n);
  row.compiler = "NVRTC 13.0";
  row.measurement.config = {"gemv_q8", {{"warps", warps}, {"rows", 2}}};
  row.measurement.nmse = 1.25e-7;
  row.measurement.max_error = 3e-4;
  row.measurement.us = 9.5 + warps;
  row.measurement.spread = 0.01;
  row.measurement.us_l2_warm = 7.25;
  row.measurement.artifact = sample_key(n).hex();
  row.created_unix = 1700000000;
  return row;
}

inline bool same(const StoredMeasurement& a, const StoredMeasurement& b) {
  const Measurement &x = a.measurement, &y = b.measurement;
  return a.key == b.key && a.compiler == b.compiler && a.created_unix == b.created_unix && x.config == y.config && x.verdict == y.verdict &&
         x.reason == y.reason && x.nmse == y.nmse && x.max_error == y.max_error && x.us == y.us && x.spread == y.spread &&
         x.us_l2_warm == y.us_l2_warm && x.unstable == y.unstable && x.artifact == y.artifact;
}

inline Winner sample_winner(int n, double us = 9.5) {
  return {sample_tuning(n), {"gemv_q8", {{"warps", 4}, {"rows", 2}}}, us, sample_key(n).hex(), 1700000000};
}

inline bool same(const Winner& a, const Winner& b) {
  return a.key == b.key && a.config == b.config && a.us == b.us && a.artifact == b.artifact && a.created_unix == b.created_unix;
}

// Options for `directory` that append each warning to *warnings.
inline StoreOptions options_for(const std::string& directory, std::vector<std::string>* warnings = nullptr) {
  StoreOptions options;
  options.directory = directory;
  if (warnings != nullptr) options.warn = [warnings](const std::string& text) { warnings->push_back(text); };
  return options;
}

inline std::vector<ArtifactInfo> artifacts_in(const std::string& directory) {
  auto listed = list_artifacts(directory, {});
  EXPECT_TRUE(listed);
  return listed ? std::move(*listed) : std::vector<ArtifactInfo>{};
}

// A child process that runs `body` and exits with what it returns. No gtest assertion works inside.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a test that hangs ends
    _exit(body());
  }
  return child;
}
inline int exit_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
inline int run_child(const std::function<int()>& body) { return exit_status(start_child(body)); }

// For child bodies: the line of the first condition that does not hold, cut to an exit status.
#define CHILD_EXPECT(condition)                                      \
  do {                                                               \
    if (!(condition)) {                                              \
      fprintf(stderr, "child: line %d: %s\n", __LINE__, #condition); \
      return 1;                                                      \
    }                                                                \
  } while (false)

inline constexpr int kCannotTryHere = 77;  // a child's exit status when the machine does not allow the set-up

// Gives up root, for which no file is read-only. False when that is not possible.
inline bool become_nobody() { return getuid() != 0 || (setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0); }

}  // namespace quern::cache
