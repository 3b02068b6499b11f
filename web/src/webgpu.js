// Kernels of the target `webgpu` on a GPU that the browser gives: docs/webgpu.md says how they are called.
import { WeftError } from "./abi.js";

const MOST_GROUPS = 65535; // of a dispatch, along each axis
const LIMITS = ["maxStorageBuffersPerShaderStage", "maxStorageBufferBindingSize", "maxBufferSize"];
const { STORAGE, COPY_SRC, COPY_DST, UNIFORM, MAP_READ } = globalThis.GPUBufferUsage ?? {};

/** Opens a GPU, with what its adapter has of what kernels may need. */
export async function openGPU() {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter();
  if (!adapter) throw new WeftError("InvalidArgument", "this page may use no GPU: it needs WebGPU and a secure origin");
  return new GPU(await adapter.requestDevice({
    requiredFeatures: ["shader-f16"].filter((f) => adapter.features.has(f)),
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]])),
  }));
}

export class GPU {
  constructor(device) {
    this.device = device;
    this.failed = null;
    device.addEventListener("uncapturederror", ({ error }) => this.failed ??= error.message);
  }

  /** Memory of the GPU with the elements of a typed array; of zeros, where a number of bytes is given. */
  buffer(data) {
    const bytes = typeof data === "number" ? data : data.byteLength, size = Math.max(4, Math.ceil(bytes / 4) * 4);
    const made = this.device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST, mappedAtCreation: true });
    if (bytes !== data) new Uint8Array(made.getMappedRange()).set(new Uint8Array(data.buffer, data.byteOffset, bytes));
    made.unmap();
    return made;
  }

  /** The bytes of a buffer, once all kernels before have run; an error where the GPU refused one. */
  async read(buffer) {
    const copy = this.device.createBuffer({ size: buffer.size, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, copy, 0, buffer.size);
    this.device.queue.submit([encoder.finish()]);
    await copy.mapAsync(GPUMapMode.READ);
    if (this.failed !== null) throw new WeftError("InternalError", this.failed);
    const bytes = copy.getMappedRange().slice(0);
    copy.destroy();
    return bytes;
  }

  /** The kernels of a text; what the browser says of a wrong one is the error. */
  async kernels(text) {
    const module = this.device.createShaderModule({ code: text });
    const wrong = (await module.getCompilationInfo()).messages.filter((m) => m.type === "error");
    if (wrong.length) throw new WeftError("CodegenError", wrong.map((m) => `line ${m.lineNum}: ${m.message}`).join("\n"));
    return new Kernels(this.device, module);
  }
}

export class Kernels {
  constructor(device, module) {
    Object.assign(this, { device, module, pipelines: new Map() });
  }

  /** Runs a kernel on `grid` groups: buffers, then the bits of the numbers, in the order of its parameters. */
  run(name, buffers, numbers, grid) {
    const { device, module, pipelines } = this, [x, y = 1, z = 1] = grid;
    if (!pipelines.has(name)) {
      pipelines.set(name, device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: name } }));
    }
    const pipeline = pipelines.get(name), encoder = device.createCommandEncoder();
    for (let first = 0; first < x; first += MOST_GROUPS) {
      const given = Uint32Array.of(first, 0, 0, ...numbers), size = Math.ceil(given.length / 4) * 16;
      const uniform = device.createBuffer({ size, usage: UNIFORM | COPY_DST });
      device.queue.writeBuffer(uniform, 0, given);
      const entries = [...buffers, uniform].map((buffer, binding) => ({ binding, resource: { buffer } }));
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(Math.min(x - first, MOST_GROUPS), y, z);
      pass.end();
    }
    device.queue.submit([encoder.finish()]);
  }
}
