#include "runtime/host/kernel_compiler.h"

#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

namespace quern::host {
namespace {

// The virtual folder that holds the kernel and every header: no real file can leak into a build.
constexpr const char* kRoot = "/quern";

#if defined(__x86_64__)
constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
// Two fixed baselines, so that objects can be cached and moved between machines of the same baseline. Both compute the same values: v3 has
// fma and f16c as instructions. Asked of the CPU and the operating system together.
const char* cpu_baseline() {
  static const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  return v3 ? "x86-64-v3" : "x86-64-v2";
}
#elif defined(__aarch64__)
constexpr const char* kTriple = "aarch64-unknown-linux-gnu";
const char* cpu_baseline() { return "generic"; }
#else
#error "the host target knows x86-64 and aarch64"
#endif

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
#ifdef QUERN_SANITIZE
    // Kernels have no globals worth fencing, and their registration would need constructors that nobody runs.
    const char* arguments[] = {"quern_host", "-asan-globals=0"};
    llvm::cl::ParseCommandLineOptions(2, arguments, "", &llvm::nulls());
#endif
  });
}

std::string file_name(const std::string& kernel_name) {
  std::string name;
  for (char c : kernel_name) name += llvm::isAlnum(c) || c == '-' || c == '.' ? c : '_';
  return std::string(kRoot) + "/" + (name.empty() ? "kernel" : name) + ".cu";
}

std::vector<std::string> arguments(const CompileInput& input, const std::string& file) {
  std::vector<std::string> all = {"-triple",
                                  kTriple,
                                  "-emit-obj",
                                  "-target-cpu",
                                  cpu_baseline(),
                                  "-mrelocation-model",
                                  "pic",
                                  "-pic-level",
                                  "2",
                                  "-O2",
                                  "-vectorize-loops",
                                  "-vectorize-slp",
                                  "-ffp-contract=off",
                                  "-std=c++20",
                                  "-fno-rtti",
                                  "-fgnuc-version=4.2.1",
                                  "-nostdsysteminc",
                                  "-nobuiltininc",
                                  "-I",
                                  kRoot,
                                  "-w",
                                  "-ferror-limit",
                                  "20"};
#if defined(__aarch64__)
  all.insert(all.end(), {"-target-feature", "+neon", "-target-abi", "aapcs"});
#endif
#ifdef QUERN_SANITIZE
  all.push_back("-mframe-pointer=all");
  const std::string sanitizers = QUERN_SANITIZE;
  if (sanitizers.find("address") != std::string::npos) all.push_back("-fsanitize=address");
  if (sanitizers.find("undefined") != std::string::npos)
    all.push_back(
        "-fsanitize=alignment,array-bounds,bool,builtin,enum,integer-divide-by-zero,nonnull-attribute,null,pointer-overflow,return,"
        "shift-base,shift-exponent,signed-integer-overflow,unreachable,vla-bound");
#endif
  all.insert(all.end(), input.options.begin(), input.options.end());
  all.insert(all.end(), {"-x", "c++", file});
  return all;
}

llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> file_system(const CompileInput& input, const std::string& file) {
  llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> files(new llvm::vfs::InMemoryFileSystem);
  files->setCurrentWorkingDirectory(kRoot);
  files->addFile(file, 0, llvm::MemoryBuffer::getMemBuffer(input.text, file));
  for (const auto& header : input.headers)
    files->addFile(std::string(kRoot) + "/" + header.name, 0, llvm::MemoryBuffer::getMemBuffer(header.text, header.name));
  return files;
}

}  // namespace

const std::string& compiler_identity() {
  static const std::string identity = [] {
    std::string text = std::string("clang ") + CLANG_VERSION_STRING + " " + cpu_baseline();
#ifdef QUERN_SANITIZE
    text += " sanitize=" QUERN_SANITIZE;
#endif
    return text;
  }();
  return identity;
}

CompileOutput compile_kernel(const CompileInput& input) {
  initialize_llvm();
  CompileOutput output;
  const std::string file = file_name(input.name);
  const auto words = arguments(input, file);
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());

  llvm::raw_string_ostream log(output.log);
  llvm::SmallString<0> object;
  {
    clang::CompilerInstance compiler;
    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(new clang::DiagnosticOptions);
    compiler.setVerboseOutputStream(log);
    compiler.createDiagnostics(new clang::TextDiagnosticPrinter(log, options.get()), true);
    if (clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), argv, compiler.getDiagnostics())) {
      compiler.createFileManager(file_system(input, file));
      compiler.createSourceManager(compiler.getFileManager());
      compiler.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(object));
      clang::EmitObjAction action;
      output.ok = compiler.ExecuteAction(action) && !compiler.getDiagnostics().hasErrorOccurred();
    }
  }
  log.flush();
  if (output.ok) output.object.assign(object.data(), object.size());
  return output;
}

}  // namespace quern::host
