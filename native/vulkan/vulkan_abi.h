// What this runtime uses of Vulkan 1.2: functions, structures and numbers, so that no headers are needed where it is
// built. Machines have 64 bits, so that all handles are pointers. Source: the Khronos Vulkan 1.3 specification.
#ifndef WEFT_VULKAN_ABI_H_
#define WEFT_VULKAN_ABI_H_

#include <cstddef>
#include <cstdint>

namespace weft::vulkan {

using Status = int32_t;  // 0 is success
using Handle = void*;
using Link = const void*;  // the next structure of a chain

struct Application { int32_t type = 0; Link next = nullptr; const char* name = "weft"; uint32_t version = 0;
                     const char* engine = nullptr; uint32_t engine_version = 0, api = 0; };
struct InstanceInfo { int32_t type = 1; Link next = nullptr; uint32_t flags = 0; const Application* application = nullptr;
                      uint32_t layers = 0; Link layer_names = nullptr; uint32_t extensions = 0; Link names = nullptr; };
struct QueueInfo { int32_t type = 2; Link next = nullptr; uint32_t flags = 0, family = 0, count = 1;
                   const float* priorities = nullptr; };
struct DeviceInfo { int32_t type = 3; Link next = nullptr; uint32_t flags = 0, queues = 1; const QueueInfo* queue = nullptr;
                    uint32_t layers = 0; Link layer_names = nullptr; uint32_t extensions = 0; Link names = nullptr;
                    Link features = nullptr; };
struct SubmitInfo { int32_t type = 4; Link next = nullptr; uint32_t waits = 0; Link wait_for = nullptr, stages = nullptr;
                    uint32_t commands = 1; const Handle* command = nullptr; uint32_t signals = 1;
                    const Handle* signal = nullptr; };
struct TimelineInfo { int32_t type = 1000207003; Link next = nullptr; uint32_t waits = 0; Link wait_values = nullptr;
                      uint32_t signals = 1; const uint64_t* values = nullptr; };
struct SemaphoreType { int32_t type = 1000207002; Link next = nullptr; int32_t kind = 1; uint64_t initial = 0; };
struct SemaphoreInfo { int32_t type = 9; Link next = nullptr; uint32_t flags = 0; };
struct WaitInfo { int32_t type = 1000207004; Link next = nullptr; uint32_t flags = 0, count = 1;
                  const Handle* semaphore = nullptr; const uint64_t* value = nullptr; };
struct PoolInfo { int32_t type = 39; Link next = nullptr; uint32_t flags = 2, family = 0; };  // buffers are used again
struct CommandInfo { int32_t type = 40; Link next = nullptr; Handle pool = nullptr; int32_t level = 0; uint32_t count = 1; };
struct BeginInfo { int32_t type = 42; Link next = nullptr; uint32_t flags = 1; Link inherited = nullptr; };
struct MemoryBarrier { int32_t type = 46; Link next = nullptr; uint32_t from = 0x18000, to = 0x18000; };  // all memory
struct BufferCopy { uint64_t from, to, size; };
struct QueryInfo { int32_t type = 11; Link next = nullptr; uint32_t flags = 0; int32_t kind = 2; uint32_t count = 1, of = 0; };
struct BufferInfo { int32_t type = 12; Link next = nullptr; uint32_t flags = 0; uint64_t size = 0;
                    uint32_t usage = 0x20023;  // source and destination of copies, storage, an address
                    int32_t sharing = 0; uint32_t families = 0; Link family = nullptr; };
struct Requirements { uint64_t size, alignment; uint32_t types; };
struct AllocateInfo { int32_t type = 5; Link next = nullptr; uint64_t size = 0; uint32_t memory_type = 0; };
struct AllocateFlags { int32_t type = 1000060000; Link next = nullptr; uint32_t flags = 2, devices = 0; };  // an address
struct AddressInfo { int32_t type = 1000244001; Link next = nullptr; Handle buffer = nullptr; };
struct ShaderInfo { int32_t type = 16; Link next = nullptr; uint32_t flags = 0; size_t size = 0; Link code = nullptr; };
struct PushRange { uint32_t stages = 0x20, offset = 0, size = 0; };
struct LayoutInfo { int32_t type = 30; Link next = nullptr; uint32_t flags = 0, sets = 0; Link set = nullptr;
                    uint32_t ranges = 1; const PushRange* range = nullptr; };
struct MapEntry { uint32_t id, offset; size_t size; };
struct Specialization { uint32_t count; const MapEntry* entries; size_t size; const void* data; };
struct StageInfo { int32_t type = 18; Link next = nullptr; uint32_t flags = 0, stage = 0x20; Handle module = nullptr;
                   const char* name = "main"; const Specialization* values = nullptr; };
struct PipelineInfo { int32_t type = 29; Link next = nullptr; uint32_t flags = 0; StageInfo stage; Handle layout = nullptr;
                      Handle base = nullptr; int32_t base_index = -1; };

struct QueueFamily { uint32_t flags, count, timestamp_bits, granularity[3]; };
struct MemoryProperties { uint32_t types; struct { uint32_t flags, heap; } type[32];
                          uint32_t heaps; struct { uint64_t size; uint32_t flags; } heap[16]; };
struct Properties11 { int32_t type = 50; void* next = nullptr; uint32_t ids[12], subgroup_size, subgroup[8];
                      uint64_t max_block; };
struct Properties12 { int32_t type = 52; void* next = nullptr; int32_t driver; char driver_name[256], driver_info[256];
                      uint32_t others[51]; };
struct Properties { int32_t type = 1000059001; void* next = nullptr; uint32_t api, driver, vendor, device; int32_t kind;
                    char name[256]; uint32_t images[59];
                    uint32_t shared_memory, max_groups[3], max_threads, max_sizes[3], graphics[44];
                    float timestamp_ns; uint32_t lines[24]; };
struct Features11 { int32_t type = 49; void* next = nullptr; uint32_t storage16, others[11]; };
struct Features12 { int32_t type = 51; void* next = nullptr; uint32_t draws[2], storage8, others[4], float16, int8,
                    more[28], timeline, address, last[8]; };
struct Features { int32_t type = 1000059000; void* next = nullptr; uint32_t robust, graphics[38], float64, int64, int16,
                  others[13]; };

constexpr uint32_t kComputeQueue = 2, kDeviceLocal = 1, kHostVisible = 6, kAllCommands = 0x10000, kSubgroupSize = 64;

// Result, name without "vk", parameters: of the loader, of an instance, of a device.
#define WEFT_VULKAN_GLOBAL(X)                                  \
  X(Status, EnumerateInstanceVersion, (uint32_t*))             \
  X(Status, CreateInstance, (const InstanceInfo*, Link, Handle*))
#define WEFT_VULKAN_INSTANCE(X)                                                      \
  X(Status, EnumeratePhysicalDevices, (Handle, uint32_t*, Handle*))                  \
  X(void, GetPhysicalDeviceProperties2, (Handle, Properties*))                       \
  X(void, GetPhysicalDeviceFeatures2, (Handle, Features*))                           \
  X(void, GetPhysicalDeviceMemoryProperties, (Handle, MemoryProperties*))            \
  X(void, GetPhysicalDeviceQueueFamilyProperties, (Handle, uint32_t*, QueueFamily*)) \
  X(Status, CreateDevice, (Handle, const DeviceInfo*, Link, Handle*))
#define WEFT_VULKAN_DEVICE(X)                                                                                        \
  X(void, GetDeviceQueue, (Handle, uint32_t, uint32_t, Handle*))                                                     \
  X(Status, QueueSubmit, (Handle, uint32_t, const SubmitInfo*, Handle))                                              \
  X(Status, CreateSemaphore, (Handle, const SemaphoreInfo*, Link, Handle*))                                          \
  X(Status, WaitSemaphores, (Handle, const WaitInfo*, uint64_t))                                                     \
  X(Status, GetSemaphoreCounterValue, (Handle, Handle, uint64_t*))                                                   \
  X(Status, CreateCommandPool, (Handle, const PoolInfo*, Link, Handle*))                                             \
  X(Status, AllocateCommandBuffers, (Handle, const CommandInfo*, Handle*))                                           \
  X(Status, BeginCommandBuffer, (Handle, const BeginInfo*))                                                          \
  X(Status, EndCommandBuffer, (Handle))                                                                              \
  X(void, CmdPipelineBarrier, (Handle, uint32_t, uint32_t, uint32_t, uint32_t, const MemoryBarrier*, uint32_t, Link, \
                               uint32_t, Link))                                                                      \
  X(void, CmdCopyBuffer, (Handle, Handle, Handle, uint32_t, const BufferCopy*))                                      \
  X(void, CmdBindPipeline, (Handle, int32_t, Handle))                                                                \
  X(void, CmdPushConstants, (Handle, Handle, uint32_t, uint32_t, uint32_t, const void*))                             \
  X(void, CmdDispatch, (Handle, uint32_t, uint32_t, uint32_t))                                                       \
  X(Status, CreateQueryPool, (Handle, const QueryInfo*, Link, Handle*))                                              \
  X(void, DestroyQueryPool, (Handle, Handle, Link))                                                                  \
  X(void, CmdResetQueryPool, (Handle, Handle, uint32_t, uint32_t))                                                   \
  X(void, CmdWriteTimestamp, (Handle, uint32_t, Handle, uint32_t))                                                   \
  X(Status, GetQueryPoolResults, (Handle, Handle, uint32_t, uint32_t, size_t, void*, uint64_t, uint32_t))            \
  X(Status, CreateBuffer, (Handle, const BufferInfo*, Link, Handle*))                                                \
  X(void, DestroyBuffer, (Handle, Handle, Link))                                                                     \
  X(void, GetBufferMemoryRequirements, (Handle, Handle, Requirements*))                                              \
  X(Status, AllocateMemory, (Handle, const AllocateInfo*, Link, Handle*))                                            \
  X(void, FreeMemory, (Handle, Handle, Link))                                                                        \
  X(Status, BindBufferMemory, (Handle, Handle, Handle, uint64_t))                                                    \
  X(Status, MapMemory, (Handle, Handle, uint64_t, uint64_t, uint32_t, void**))                                       \
  X(uint64_t, GetBufferDeviceAddress, (Handle, const AddressInfo*))                                                  \
  X(Status, CreateShaderModule, (Handle, const ShaderInfo*, Link, Handle*))                                          \
  X(void, DestroyShaderModule, (Handle, Handle, Link))                                                               \
  X(Status, CreatePipelineLayout, (Handle, const LayoutInfo*, Link, Handle*))                                        \
  X(void, DestroyPipelineLayout, (Handle, Handle, Link))                                                             \
  X(Status, CreateComputePipelines, (Handle, Handle, uint32_t, const PipelineInfo*, Link, Handle*))                  \
  X(void, DestroyPipeline, (Handle, Handle, Link))

}  // namespace weft::vulkan
#endif  // WEFT_VULKAN_ABI_H_
