/** Kernels of the target `webgpu` on a GPU of the browser: docs/webgpu.md. */
export function openGPU(): Promise<GPU>;
export class GPU {
  readonly device: unknown; // a GPUDevice
  buffer(data: ArrayBufferView | number): { readonly size: number; destroy(): void };
  read(buffer: ReturnType<GPU["buffer"]>): Promise<ArrayBuffer>;
  kernels(text: string): Promise<Kernels>;
}
export class Kernels {
  run(name: string, buffers: ReturnType<GPU["buffer"]>[], numbers: ArrayLike<number> & Iterable<number>, grid: number[]): void;
}
