// Vulkan devices, a library of its own that the runtime opens when one is first asked for. Tensors have addresses as
// everywhere: those of buffers (bufferDeviceAddress of Vulkan 1.2). A device has one queue, so that all streams are in
// the order in which work is given; a timeline semaphore counts what is done.
#include <dlfcn.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "device_api.h"
#include "error.h"
#include "vulkan_abi.h"

namespace weft::vulkan {
namespace {

constexpr size_t kStaging = 4 << 20;          // bytes that one copy between host and device takes at once
constexpr size_t kPushed = 14;                // arguments that fit beside the place of the first block (128 bytes)
constexpr int kTooManyThreads = 1, kTooMuchShared = 2;  // beside the driver's own numbers

struct Block {
  Handle buffer = nullptr, memory = nullptr;
  uint64_t address = 0;
  size_t size = 0;
  void* host = nullptr;  // where the host can write
};

// Commands under way, or done and free to be written again.
struct Commands {
  Handle buffer = nullptr;
  uint64_t done = 0;  // the count at which they are
  Block arguments;
};

struct Kernel {
  std::string name, code;
  unsigned shared = 0;
  Handle layout = nullptr, module = nullptr;
  std::map<std::array<uint32_t, 3>, Handle> pipelines;  // by the threads of a block
};

struct Program {
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

struct Device {
  Handle physical = nullptr, id = nullptr, queue = nullptr, pool = nullptr, semaphore = nullptr;
  uint32_t family = 0;
  Properties properties;
  Properties11 properties11;
  Properties12 properties12;
  Features features;
  Features11 features11;
  Features12 features12;
  MemoryProperties memory;
  uint64_t submitted = 0;
  std::deque<std::unique_ptr<Commands>> commands;  // the oldest first
  std::map<uint64_t, Block> blocks;  // by address
  std::set<Handle> streams;
  Block staging;
  std::mutex mutex, copying;
};

struct Functions {
#define WEFT_FIELD(result, name, args) result(*name) args = nullptr;
  WEFT_VULKAN_GLOBAL(WEFT_FIELD) WEFT_VULKAN_INSTANCE(WEFT_FIELD) WEFT_VULKAN_DEVICE(WEFT_FIELD)
#undef WEFT_FIELD
};

class VulkanApi final : public DeviceApi, Functions {
 public:
  VulkanApi() : DeviceApi(kDLVulkan, "vulkan") { problem_ = open(); }

  std::string status_text(int status) const final {
    static const char* const kNames[] = {"OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "INITIALIZATION_FAILED",
                                         "DEVICE_LOST", "MEMORY_MAP_FAILED", "LAYER_NOT_PRESENT",
                                         "EXTENSION_NOT_PRESENT", "FEATURE_NOT_PRESENT", "INCOMPATIBLE_DRIVER",
                                         "TOO_MANY_OBJECTS"};
    if (status == kTooManyThreads) return "a block has more threads than the device can run";
    if (status == kTooMuchShared) return "a block needs more shared memory than the device has";
    return status < 0 && status >= -10 ? message("VK_ERROR_%s (Vulkan error %d)", kNames[-1 - status], status)
                                       : message("Vulkan error %d", status);
  }

  int count() final { return static_cast<int>(devices_.size()); }

  int enter(int device) final {
    if (devices_.empty()) {
      return fail("RuntimeError", "vulkan:%d cannot be used: no Vulkan device (%s); WEFT_VULKAN_DRIVER may name the "
                  "library of Vulkan's loader", device, problem_.c_str());
    }
    if (device < 0 || device >= count()) {
      return fail("ValueError", "there is no device vulkan:%d; the drivers have %d", device, count());
    }
    Device& d = at(device);
    std::lock_guard<std::mutex> lock(d.mutex);
    return d.id != nullptr ? 0 : check(start(d), device, "starting the device");
  }

  int alloc(int device, size_t nbytes, void** out) final {
    if (enter(device) != 0) return -1;
    Device& d = at(device);
    Block block;
    if (Status status = take(d, std::max<size_t>(nbytes, 16), kDeviceLocal, &block)) {
      return fail("MemoryError", "cannot allocate %zu bytes on vulkan:%d (%s): %s; one block may have %llu, the device "
                  "has %llu", nbytes, device, d.properties.name, status_text(status).c_str(),
                  static_cast<unsigned long long>(d.properties11.max_block), total_memory(d));
    }
    std::lock_guard<std::mutex> lock(d.mutex);
    d.blocks.emplace(block.address, block);
    *out = reinterpret_cast<void*>(block.address);
    return 0;
  }
  void free(int device, void* data) final {  // commands that use it may be under way
    Device& d = at(device);
    wait(d);
    std::lock_guard<std::mutex> lock(d.mutex);
    auto found = d.blocks.find(reinterpret_cast<uint64_t>(data));
    if (found == d.blocks.end()) return;
    give(d, &found->second);
    d.blocks.erase(found);
  }

  int copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) final {
    bool from_own = from_device.device_type == type, to_own = to_device.device_type == type;
    int device = to_own ? to_device.device_id : from_device.device_id;
    if (from_own && to_own && from_device.device_id != device) {  // of two drivers, perhaps: by the host
      std::vector<char> host(nbytes);
      DLDevice cpu{kDLCPU, 0};
      if (copy(from, from_device, host.data(), cpu, nbytes) != 0) return -1;
      return copy(host.data(), cpu, to, to_device, nbytes);
    }
    if (enter(device) != 0) return -1;
    if (nbytes == 0) return 0;
    Device& d = at(device);
    auto source = reinterpret_cast<uint64_t>(from), target = reinterpret_cast<uint64_t>(to);
    if (from_own && to_own) {
      return check(copy_blocks(d, block_of(d, source), block_of(d, target), nbytes), device, "copying on the device");
    }
    std::lock_guard<std::mutex> lock(d.copying);
    if (d.staging.buffer == nullptr) {
      if (Status status = take(d, kStaging, kHostVisible, &d.staging)) return check(status, device, "taking host memory");
    }
    for (size_t done = 0; done < nbytes; done += kStaging) {
      size_t size = std::min(kStaging, nbytes - done);
      if (to_own) std::memcpy(d.staging.host, static_cast<const char*>(from) + done, size);
      Status status = to_own ? copy_blocks(d, {d.staging.buffer, 0}, block_of(d, target + done), size)
                             : copy_blocks(d, block_of(d, source + done), {d.staging.buffer, 0}, size);
      if (status == 0) status = wait(d);
      if (status != 0) return check(status, device, to_own ? "copying to the device" : "copying from the device");
      if (!to_own) std::memcpy(static_cast<char*>(to) + done, d.staging.host, size);
    }
    return 0;
  }

  int sync(int device) final { return enter(device) == 0 ? check(wait(at(device)), device, "waiting") : -1; }

  int stream_create(int device, Handle* out) final {
    if (enter(device) != 0) return -1;
    std::lock_guard<std::mutex> lock(at(device).mutex);
    at(device).streams.insert(*out = new char);
    return 0;
  }
  int stream_free(int device, Handle stream) final {
    std::lock_guard<std::mutex> lock(at(device).mutex);
    if (at(device).streams.erase(stream) == 0) {
      return fail("ValueError", "%p is no stream of vulkan:%d", stream, device);
    }
    delete static_cast<char*>(stream);
    return 0;
  }
  int stream_sync(int device, Handle) final { return sync(device); }
  int stream_order(int device, Handle, Handle) final { return enter(device); }  // one queue: they are in order

  int event_create(int device, Handle* out) final {
    if (enter(device) != 0) return -1;
    auto* event = new Event{device, nullptr};
    *out = event;
    const QueryInfo info;
    return check(CreateQueryPool(at(device).id, &info, nullptr, &event->queries), device, "creating an event");
  }
  int event_record(int device, Handle event) final {
    if (enter(device) != 0) return -1;
    Handle queries = static_cast<Event*>(event)->queries;
    Status status = submit(at(device), 0, [&](Commands& c) {
      CmdResetQueryPool(c.buffer, queries, 0, 1);
      CmdWriteTimestamp(c.buffer, kAllCommands, queries, 0);
    });
    return check(status, device, "recording an event");
  }
  int event_seconds(int device, Handle first, Handle then, double* out) final {
    uint64_t ticks[2] = {0, 0};
    Status status = wait(at(device));
    for (int i : {0, 1}) {
      Handle queries = static_cast<Event*>(i == 0 ? first : then)->queries;
      if (status == 0) status = GetQueryPoolResults(at(device).id, queries, 0, 1, 8, &ticks[i], 8, 3);  // 64 bits, waits
    }
    *out = static_cast<double>(ticks[1] - ticks[0]) * at(device).properties.timestamp_ns * 1e-9;
    return check(status, device, "timing events");
  }
  void event_free(Handle event) final {
    std::unique_ptr<Event> e(static_cast<Event*>(event));
    wait(at(e->device));
    DestroyQueryPool(at(e->device).id, e->queries, nullptr);
  }

  int attribute(int device, const std::string& what, tvm::ffi::Any* out) final {
    if (enter(device) != 0) return -1;
    Device& d = at(device);
    const std::pair<const char*, unsigned long long> numbers[] = {
        {"max_threads_per_block", d.properties.max_threads},
        {"max_shared_memory_per_block", d.properties.shared_memory},
        {"warp_size", d.properties11.subgroup_size},
        {"total_global_memory", total_memory(d)}};
    uint32_t api = d.properties.api;
    const std::pair<const char*, std::string> texts[] = {
        {"device_name", d.properties.name},
        {"api_version", message("%u.%u.%u", api >> 22 & 127, api >> 12 & 1023, api & 4095)},
        {"driver_version", message("%s %s", d.properties12.driver_name, d.properties12.driver_info)}};
    for (const auto& [name, value] : numbers) {
      if (what == name) *out = static_cast<int64_t>(value);
    }
    for (const auto& [name, value] : texts) {
      if (what == name) *out = tvm::ffi::String(value);
    }
    return 0;
  }

  // An image is the kernels one after the other: name, bytes of shared memory and SPIR-V, all with their lengths.
  int load(int device, const std::string& image, const std::string&, const std::string& kernel, Handle* out) final {
    auto program = std::make_unique<Program>();
    size_t place = 0;
    auto text = [&](std::string* to) {
      uint64_t size = 0;
      if (image.size() - place < 8) return false;
      std::memcpy(&size, image.data() + place, 8);
      if (size > image.size() - place - 8) return false;
      *to = image.substr(place + 8, size);
      place += 8 + size;
      return true;
    };
    while (place < image.size()) {
      auto k = std::make_unique<Kernel>();
      std::string shared;
      if (!text(&k->name) || !text(&shared) || !text(&k->code)) {
        return fail("ExecutableError", "vulkan:%d: the image of \"%s\" is cut short", device, kernel.c_str());
      }
      k->shared = static_cast<unsigned>(std::strtoul(shared.c_str(), nullptr, 10));
      std::string key = k->name;
      program->kernels[key] = std::move(k);
    }
    *out = program.release();
    return 0;
  }
  void unload(int device, Handle program) final {
    Device& d = at(device);
    wait(d);
    std::unique_ptr<Program> p(static_cast<Program*>(program));
    for (auto& [name, k] : p->kernels) {
      for (auto& [threads, pipeline] : k->pipelines) DestroyPipeline(d.id, pipeline, nullptr);
      if (k->module != nullptr) DestroyShaderModule(d.id, k->module, nullptr);
      if (k->layout != nullptr) DestroyPipelineLayout(d.id, k->layout, nullptr);
    }
  }

  int kernel(int device, Handle program, const std::string& name, Handle* out) final {
    if (enter(device) != 0) return -1;
    Device& d = at(device);
    auto& kernels = static_cast<Program*>(program)->kernels;
    auto found = kernels.find(name);
    if (found == kernels.end()) {
      return fail("RuntimeError", "vulkan:%d: the program has no kernel \"%s\"", device, name.c_str());
    }
    Kernel& k = *found->second;
    if (const char* lacking = lacks(d, k.code)) {
      return fail("RuntimeError", "vulkan:%d (%s) does not run \"%s\": it has no %s", device, d.properties.name,
                  name.c_str(), lacking);
    }
    ShaderInfo shader;
    shader.size = k.code.size();
    shader.code = k.code.data();
    PushRange range;
    range.size = 16 + 8 * kPushed;
    LayoutInfo layout;
    layout.range = &range;
    if (check(CreateShaderModule(d.id, &shader, nullptr, &k.module), device, "reading a program") != 0) return -1;
    if (check(CreatePipelineLayout(d.id, &layout, nullptr, &k.layout), device, "reading a program") != 0) return -1;
    *out = &k;
    return 0;
  }

  int launch(int device, Handle kernel, const KernelLaunch& l) final {
    Device& d = at(device);
    auto& k = *static_cast<Kernel*>(kernel);
    uint64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
      threads *= l.extents[3 + i];
      if (l.extents[3 + i] > d.properties.max_sizes[i]) return kTooManyThreads;
    }
    if (threads > d.properties.max_threads) return kTooManyThreads;
    if (k.shared > d.properties.shared_memory) return kTooMuchShared;
    size_t n = l.arguments.size(), bytes = n > kPushed ? n * 8 : 0;
    return submit(d, bytes, [&](Commands& c) {
      struct { uint32_t base[4]; uint64_t words[kPushed]; } pushed{};
      auto* words = bytes != 0 ? static_cast<uint64_t*>(c.arguments.host) : pushed.words;
      for (size_t i = 0; i < n; ++i) words[i] = l.arguments[i].bits;
      if (bytes != 0) pushed.words[0] = c.arguments.address;
      Handle pipeline = nullptr;
      if (Status status = pipeline_of(d, k, {l.extents[3], l.extents[4], l.extents[5]}, &pipeline)) return status;
      CmdBindPipeline(c.buffer, 1, pipeline);
      const auto& most = d.properties.max_groups;  // of one dispatch
      for (uint32_t z = 0; z < l.extents[2]; z += most[2]) {
        for (uint32_t y = 0; y < l.extents[1]; y += most[1]) {
          for (uint32_t x = 0; x < l.extents[0]; x += most[0]) {
            const uint32_t base[] = {x, y, z};
            std::copy(base, base + 3, pushed.base);
            CmdPushConstants(c.buffer, k.layout, 0x20, 0, sizeof(pushed), &pushed);
            CmdDispatch(c.buffer, std::min(most[0], l.extents[0] - x), std::min(most[1], l.extents[1] - y),
                        std::min(most[2], l.extents[2] - z));
          }
        }
      }
      return 0;
    });
  }

 private:
  struct Event {
    int device;
    Handle queries;
  };
  struct Place {
    Handle buffer;
    uint64_t offset;
  };

  Device& at(int device) { return *devices_[device]; }
  int check(Status status, int device, const char* doing) {
    return status == 0 ? 0 : fail("RuntimeError", "vulkan:%d (%s): %s: %s", device, at(device).properties.name, doing,
                                  status_text(status).c_str());
  }

  // Opens the loader and lists devices; the answer says why there are none.
  std::string open() {
    const char* path = std::getenv("WEFT_VULKAN_DRIVER");
    void* library = dlopen(path != nullptr && *path != 0 ? path : "libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return dlerror();
    auto find = reinterpret_cast<void* (*)(Handle, const char*)>(dlsym(library, "vkGetInstanceProcAddr"));
    if (find == nullptr) return "the library has no vkGetInstanceProcAddr";
    uint32_t version = 0, n = 0;
    Handle instance = nullptr;
    const char* missing = nullptr;
#define WEFT_FIND(result, name, args) \
  if ((*reinterpret_cast<void**>(&name) = find(instance, "vk" #name)) == nullptr) missing = "vk" #name;
    WEFT_VULKAN_GLOBAL(WEFT_FIND)
    if (missing != nullptr || EnumerateInstanceVersion(&version) != 0 || version < kVersion12) {
      return "the loader is older than Vulkan 1.2";
    }
    Application application;
    application.api = kVersion12;
    InstanceInfo info;
    info.application = &application;
    if (Status status = CreateInstance(&info, nullptr, &instance)) return status_text(status);
    WEFT_VULKAN_INSTANCE(WEFT_FIND)
    WEFT_VULKAN_DEVICE(WEFT_FIND)
#undef WEFT_FIND
    if (missing != nullptr) return message("the loader has no %s", missing);
    if (Status status = EnumeratePhysicalDevices(instance, &n, nullptr)) return status_text(status);
    std::vector<Handle> found(n);
    if (Status status = EnumeratePhysicalDevices(instance, &n, found.data())) return status_text(status);
    for (Handle physical : found) {
      auto device = std::make_unique<Device>();
      if (describe(physical, *device)) devices_.push_back(std::move(device));
    }
    static const int kOrder[] = {4, 1, 0, 2, 3};  // of kinds by number: discrete, integrated, virtual, CPU, other
    auto rank = [](const auto& d) { return d->properties.kind < 5 ? (kOrder[d->properties.kind]) : 5; };
    std::stable_sort(devices_.begin(), devices_.end(),
                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return message("%u devices without Vulkan 1.2, addresses of buffers or 64-bit integers", n);
  }

  // Reads what a device is; whether it can be used.
  bool describe(Handle physical, Device& d) {
    d.physical = physical;
    d.properties.next = &d.properties11;
    d.properties11.next = &d.properties12;
    GetPhysicalDeviceProperties2(physical, &d.properties);
    if (d.properties.api < kVersion12) return false;
    d.features.next = &d.features11;
    d.features11.next = &d.features12;
    GetPhysicalDeviceFeatures2(physical, &d.features);
    GetPhysicalDeviceMemoryProperties(physical, &d.memory);
    uint32_t n = 0;
    GetPhysicalDeviceQueueFamilyProperties(physical, &n, nullptr);
    std::vector<QueueFamily> families(n);
    GetPhysicalDeviceQueueFamilyProperties(physical, &n, families.data());
    while (d.family < n && ((families[d.family].flags & kComputeQueue) == 0 || families[d.family].timestamp_bits == 0)) {
      ++d.family;
    }
    return d.family < n && d.features12.address && d.features12.timeline && d.features.int64;
  }

  // Makes the device with all features that it has, but for the check of every access.
  Status start(Device& d) {
    const float priority = 1;
    QueueInfo queue;
    queue.family = d.family;
    queue.priorities = &priority;
    DeviceInfo info;
    info.queue = &queue;
    d.features.robust = 0;
    info.next = &d.features;
    Handle device = nullptr;
    if (Status status = CreateDevice(d.physical, &info, nullptr, &device)) return status;
    GetDeviceQueue(device, d.family, 0, &d.queue);
    PoolInfo pool;
    pool.family = d.family;
    const SemaphoreType timeline;
    SemaphoreInfo semaphore;
    semaphore.next = &timeline;
    Status status = CreateCommandPool(device, &pool, nullptr, &d.pool);
    if (status == 0) status = CreateSemaphore(device, &semaphore, nullptr, &d.semaphore);
    if (status == 0) d.id = device;
    return status;
  }

  unsigned long long total_memory(const Device& d) const {
    unsigned long long total = 0;
    for (uint32_t i = 0; i < d.memory.heaps; ++i) {
      if (d.memory.heap[i].flags & kDeviceLocal) total += d.memory.heap[i].size;
    }
    return total;
  }

  // Makes a block of memory with an address; `flags` say of which kind the memory is, and what is visible is mapped.
  Status take(Device& d, size_t nbytes, uint32_t flags, Block* out) {
    constexpr Status kOutOfMemory = -2;
    if (nbytes > d.properties11.max_block || nbytes > total_memory(d)) return kOutOfMemory;
    BufferInfo info;
    info.size = nbytes;
    Block b;
    b.size = nbytes;
    if (Status status = CreateBuffer(d.id, &info, nullptr, &b.buffer)) return status;
    Requirements needs{};
    GetBufferMemoryRequirements(d.id, b.buffer, &needs);
    const AllocateFlags address;
    AllocateInfo memory;
    memory.next = &address;
    memory.size = needs.size;
    auto fits = [&](uint32_t i) { return needs.types >> i & 1 && (d.memory.type[i].flags & flags) == flags; };
    while (memory.memory_type < d.memory.types && !fits(memory.memory_type)) ++memory.memory_type;
    Status status = memory.memory_type == d.memory.types ? kOutOfMemory
                                                         : AllocateMemory(d.id, &memory, nullptr, &b.memory);
    if (status == 0) status = BindBufferMemory(d.id, b.buffer, b.memory, 0);
    if (status == 0 && flags == kHostVisible) status = MapMemory(d.id, b.memory, 0, nbytes, 0, &b.host);
    if (status != 0) return give(d, &b), status;
    AddressInfo where;
    where.buffer = b.buffer;
    b.address = GetBufferDeviceAddress(d.id, &where);
    *out = b;
    return 0;
  }
  void give(Device& d, Block* b) {
    if (b->buffer != nullptr) DestroyBuffer(d.id, b->buffer, nullptr);
    if (b->memory != nullptr) FreeMemory(d.id, b->memory, nullptr);
    *b = Block();
  }
  Place block_of(Device& d, uint64_t address) {
    std::lock_guard<std::mutex> lock(d.mutex);
    auto after = d.blocks.upper_bound(address);
    if (after == d.blocks.begin()) return {nullptr, 0};
    const Block& b = std::prev(after)->second;
    return address - b.address < b.size ? Place{b.buffer, address - b.address} : Place{nullptr, 0};
  }
  Status copy_blocks(Device& d, Place from, Place to, size_t size) {
    constexpr Status kInvalidAddress = -1000257000;
    if (from.buffer == nullptr || to.buffer == nullptr) return kInvalidAddress;
    return submit(d, 0, [&](Commands& c) {
      const BufferCopy region{from.offset, to.offset, size};
      CmdCopyBuffer(c.buffer, from.buffer, to.buffer, 1, &region);
    });
  }

  // Writes commands and gives them to the queue, behind all that is there; `bytes` of arguments are with them.
  template <typename Write>
  Status submit(Device& d, size_t bytes, Write write) {
    std::lock_guard<std::mutex> lock(d.mutex);
    Commands* c = nullptr;
    if (Status status = unused_commands(d, &c)) return status;
    if (c->arguments.size < bytes) {
      give(d, &c->arguments);
      if (Status status = take(d, std::max<size_t>(bytes, 1024), kHostVisible, &c->arguments)) return status;
    }
    const BeginInfo begin;
    const MemoryBarrier barrier;
    if (Status status = BeginCommandBuffer(c->buffer, &begin)) return status;
    CmdPipelineBarrier(c->buffer, kAllCommands, kAllCommands, 0, 1, &barrier, 0, nullptr, 0, nullptr);
    if constexpr (std::is_same_v<decltype(write(*c)), void>) {
      write(*c);
    } else {
      if (Status status = write(*c)) return EndCommandBuffer(c->buffer), status;
    }
    if (Status status = EndCommandBuffer(c->buffer)) return status;
    const uint64_t value = d.submitted + 1;
    TimelineInfo timeline;
    timeline.values = &value;
    SubmitInfo info;
    info.next = &timeline;
    info.command = &c->buffer;
    info.signal = &d.semaphore;
    Status status = QueueSubmit(d.queue, 1, &info, nullptr);
    if (status == 0) c->done = d.submitted = value;
    return status;
  }
  Status unused_commands(Device& d, Commands** out) {
    uint64_t done = 0;
    if (Status status = GetSemaphoreCounterValue(d.id, d.semaphore, &done)) return status;
    auto c = std::make_unique<Commands>();
    if (!d.commands.empty() && d.commands.front()->done <= done) {
      c = std::move(d.commands.front());
      d.commands.pop_front();
    } else {
      CommandInfo info;
      info.pool = d.pool;
      if (Status status = AllocateCommandBuffers(d.id, &info, &c->buffer)) return status;
    }
    *out = c.get();
    d.commands.push_back(std::move(c));
    return 0;
  }
  Status wait(Device& d) {
    uint64_t value = 0;
    {
      std::lock_guard<std::mutex> lock(d.mutex);
      value = d.submitted;
    }
    WaitInfo info;
    info.semaphore = &d.semaphore;
    info.value = &value;
    return WaitSemaphores(d.id, &info, ~uint64_t{0});
  }

  // What the code declares (OpCapability) and the device has not; null where it has all.
  static const char* lacks(const Device& d, const std::string& code) {
    const std::tuple<uint32_t, uint32_t, const char*> needs[] = {
        {10, d.features.float64, "float64"}, {22, d.features.int16, "16-bit integers"},
        {39, d.features12.int8, "8-bit integers"}, {4433, d.features11.storage16, "16-bit memory"},
        {4448, d.features12.storage8, "8-bit memory"}};
    for (size_t i = 20; i + 8 <= code.size(); i += 8) {  // behind the header, two words each
      uint32_t words[2];
      std::memcpy(words, code.data() + i, 8);
      if (words[0] != (2u << 16 | 17)) break;
      for (const auto& [capability, has, name] : needs) {
        if (words[1] == capability && has == 0) return name;
      }
    }
    return nullptr;
  }

  Status pipeline_of(Device& d, Kernel& k, std::array<uint32_t, 3> threads, Handle* out) {
    Handle& known = k.pipelines[threads];
    if (known == nullptr) {
      const MapEntry entries[] = {{0, 0, 4}, {1, 4, 4}, {2, 8, 4}};
      const Specialization sizes{3, entries, sizeof(threads), threads.data()};
      PipelineInfo info;
      info.stage.module = k.module;
      info.stage.values = &sizes;
      info.layout = k.layout;
      if (Status status = CreateComputePipelines(d.id, nullptr, 1, &info, nullptr, &known)) return status;
    }
    *out = known;
    return 0;
  }

  static constexpr uint32_t kVersion12 = 1u << 22 | 2u << 12;
  std::string problem_;  // why there is no device
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace
}  // namespace weft::vulkan

extern "C" __attribute__((visibility("default"))) weft::DeviceApi* weft_vulkan_api() {
  static auto* api = new weft::vulkan::VulkanApi();  // never destroyed: tensors may outlive static destruction
  return api;
}
