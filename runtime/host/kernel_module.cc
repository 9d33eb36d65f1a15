#include "runtime/host/kernel_module.h"

#include <dlfcn.h>
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "ptx/host_lane.h"

namespace quern::host {
namespace {

#if LLVM_VERSION_MAJOR >= 16
using SectionAlignment = llvm::Align;
#else
using SectionAlignment = std::uint32_t;
#endif

// All sections in one mapping, code then constants then data, so that every relative relocation reaches.
class Sections : public llvm::RuntimeDyld::MemoryManager {
 public:
  ~Sections() override {
    if (base_ != nullptr) munmap(base_, size_);
  }
  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(std::uintptr_t code, SectionAlignment, std::uintptr_t constants, SectionAlignment, std::uintptr_t data,
                              SectionAlignment) override {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto pages = [page](std::uintptr_t bytes) { return (bytes + kSlack + page - 1) / page * page; };
    size_ = pages(code) + pages(constants) + pages(data);
    void* mapping = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
      size_ = 0;
      return;
    }
    base_ = static_cast<std::uint8_t*>(mapping);
    code_ = {base_, base_ + pages(code)};
    constants_ = {code_.end, code_.end + pages(constants)};
    data_ = {constants_.end, constants_.end + pages(data)};
    code_begin_ = code_.next;
    constants_begin_ = constants_.next;
  }
  std::uint8_t* allocateCodeSection(std::uintptr_t size, unsigned alignment, unsigned, llvm::StringRef) override {
    return code_.take(size, alignment);
  }
  std::uint8_t* allocateDataSection(std::uintptr_t size, unsigned alignment, unsigned, llvm::StringRef, bool read_only) override {
    return (read_only ? constants_ : data_).take(size, alignment);
  }
  void registerEHFrames(std::uint8_t*, std::uint64_t, std::size_t) override {}
  void deregisterEHFrames() override {}
  bool finalizeMemory(std::string* error) override {
    if (base_ == nullptr || mprotect(code_begin_, static_cast<std::size_t>(code_.end - code_begin_), PROT_READ | PROT_EXEC) != 0 ||
        mprotect(constants_begin_, static_cast<std::size_t>(constants_.end - constants_begin_), PROT_READ) != 0) {
      if (error != nullptr) *error = std::string("cannot map kernel code: ") + std::strerror(errno);
      return true;
    }
    __builtin___clear_cache(reinterpret_cast<char*>(code_begin_), reinterpret_cast<char*>(code_.end));
    return false;
  }

 private:
  static constexpr std::size_t kSlack = 4096;  // alignment between sections
  struct Range {
    std::uint8_t* next = nullptr;
    std::uint8_t* end = nullptr;
    std::uint8_t* take(std::uintptr_t size, unsigned alignment) {
      const auto mask = static_cast<std::uintptr_t>(alignment == 0 ? 16 : alignment) - 1;
      auto* start = reinterpret_cast<std::uint8_t*>((reinterpret_cast<std::uintptr_t>(next) + mask) & ~mask);
      if (start > end || size > static_cast<std::uintptr_t>(end - start)) return nullptr;
      next = start + size;
      return start;
    }
  };
  std::uint8_t* base_ = nullptr;
  std::size_t size_ = 0;
  Range code_, constants_, data_;
  std::uint8_t* code_begin_ = nullptr;
  std::uint8_t* constants_begin_ = nullptr;
};

// What a kernel may call: the scheduling points, what code generation itself needs, and the sanitizers of the process.
void* address_of(const std::string& name) {
  static const std::map<std::string, void*> known = {
      {"quern_host_lane", reinterpret_cast<void*>(&quern_host_lane)},
      {"quern_host_barrier", reinterpret_cast<void*>(&quern_host_barrier)},
      {"quern_host_exchange", reinterpret_cast<void*>(&quern_host_exchange)},
      {"quern_host_copy", reinterpret_cast<void*>(&quern_host_copy)},
      {"quern_host_copy_commit", reinterpret_cast<void*>(&quern_host_copy_commit)},
      {"quern_host_copy_wait", reinterpret_cast<void*>(&quern_host_copy_wait)},
      {"quern_host_fault", reinterpret_cast<void*>(&quern_host_fault)},
      {"fmaf", reinterpret_cast<void*>(static_cast<float (*)(float, float, float)>(&::fmaf))},
      {"rintf", reinterpret_cast<void*>(static_cast<float (*)(float)>(&::rintf))},
      {"memcpy", reinterpret_cast<void*>(&std::memcpy)},
      {"memmove", reinterpret_cast<void*>(&std::memmove)},
      {"memset", reinterpret_cast<void*>(&std::memset)},
  };
  if (const auto found = known.find(name); found != known.end()) return found->second;
  if (name.starts_with("__asan_") || name.starts_with("__ubsan_") || name.starts_with("__sanitizer_"))
    return dlsym(RTLD_DEFAULT, name.c_str());
  return nullptr;
}

class Resolver : public llvm::LegacyJITSymbolResolver {
 public:
  llvm::JITSymbol findSymbol(const std::string& name) override {
    return {static_cast<llvm::JITTargetAddress>(reinterpret_cast<std::uintptr_t>(address_of(name))), llvm::JITSymbolFlags::Exported};
  }
  llvm::JITSymbol findSymbolInLogicalDylib(const std::string&) override { return nullptr; }
};

}  // namespace

struct KernelModule::State {
  std::string object;  // RuntimeDyld reads symbol names from it
  Sections sections;
  Resolver resolver;
  std::unique_ptr<llvm::RuntimeDyld> linker;
  std::mutex mutex;
  std::map<std::string, KernelFunction> functions;  // guarded by mutex; nodes stay where they are
};

KernelModule::KernelModule(std::unique_ptr<State> state) : state_(std::move(state)) {}
KernelModule::~KernelModule() = default;

std::unique_ptr<KernelModule> KernelModule::load(const void* object, std::size_t size, std::string& error) {
  auto state = std::make_unique<State>();
  state->object.assign(static_cast<const char*>(object), size);
  auto parsed = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(state->object, "kernel"));
  if (!parsed) {
    error = "not an object file: " + llvm::toString(parsed.takeError());
    return nullptr;
  }
#if defined(__x86_64__)
  constexpr auto kArch = llvm::Triple::x86_64;
#else
  constexpr auto kArch = llvm::Triple::aarch64;
#endif
  if ((*parsed)->getArch() != kArch || !(*parsed)->isELF() || !(*parsed)->isRelocatableObject()) {
    error = "an object for " + llvm::Triple::getArchTypeName((*parsed)->getArch()).str() + ", needed a relocatable one for " +
            llvm::Triple::getArchTypeName(kArch).str();
    return nullptr;
  }
  state->linker = std::make_unique<llvm::RuntimeDyld>(state->sections, state->resolver);
  state->linker->loadObject(**parsed);
  if (!state->linker->hasError()) state->linker->resolveRelocations();
  std::string mapping_error;
  if (state->linker->hasError()) {
    error = state->linker->getErrorString().str();
    return nullptr;
  }
  if (state->sections.finalizeMemory(&mapping_error)) {
    error = mapping_error;
    return nullptr;
  }
  return std::unique_ptr<KernelModule>(new KernelModule(std::move(state)));
}

const KernelFunction* KernelModule::function(const std::string& name) {
  std::lock_guard lock(state_->mutex);
  if (const auto found = state_->functions.find(name); found != state_->functions.end()) return &found->second;
  const auto address = [&](const std::string& symbol) { return state_->linker->getSymbol(symbol).getAddress(); };
  const auto entry = address(name), bound = address(name + "_max_threads");
  if (entry == 0 || bound == 0) return nullptr;
  KernelFunction function{name, reinterpret_cast<KernelEntry>(entry), *reinterpret_cast<const std::uint32_t*>(bound)};
  return &state_->functions.emplace(name, std::move(function)).first->second;
}

std::string KernelModule::symbol_of(const KernelFunction& function) {
  std::lock_guard lock(state_->mutex);
  for (const auto& [name, symbol] : state_->linker->getSymbolTable())
    if (symbol.getAddress() == reinterpret_cast<std::uintptr_t>(function.entry)) return name.str();
  return {};
}

}  // namespace quern::host
